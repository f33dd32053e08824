//! The Markdown tree in the page. Elements are made one by one from the closed set of [`Tag`]: no markup is ever parsed here.
//!
//! What is shown stays where it can: text that grew is appended to the text node that is there, so that a selection in a streaming
//! reply survives and one more token costs one small change.

use wasm_bindgen::JsCast;
use web_sys::{Document, Element};

use crate::markdown::{Align, Node, Tag};

/// A list of blocks within an element of the page.
pub struct Rendered {
    host: Element,
    document: Document,
    shown: Vec<Node>,
    mounted: Vec<Mounted>,
    /// The outline behind each block.
    outlines: Vec<Outline>,
}

/// The headings that a place is below, as one bit per level. A reply may begin with a small heading and skip levels; its elements do
/// not, so that whoever goes from heading to heading misses none.
#[derive(Clone, Copy, Default)]
struct Outline(u8);

impl Outline {
    /// The name of the element for a heading of that level here. The page's own headings come first: a reply's begin below them.
    fn heading(&mut self, level: u8) -> &'static str {
        let bit = 1 << level.clamp(1, 6);
        self.0 = self.0 & (bit - 1) | bit;
        match self.0.count_ones() {
            1 => "h3",
            2 => "h4",
            3 => "h5",
            _ => "h6",
        }
    }
}

/// One node in the page, and the element that holds its children (not the same where an element is wrapped).
struct Mounted {
    node: web_sys::Node,
    host: web_sys::Node,
    children: Vec<Mounted>,
}

impl Rendered {
    /// Shows nothing so far. `host` is to be empty, and left alone from now on.
    #[must_use]
    pub fn new(host: Element, document: Document) -> Self {
        Self { host, document, shown: Vec::new(), mounted: Vec::new(), outlines: Vec::new() }
    }

    /// Shows `blocks`, which are the same as before up to `from`.
    pub fn show(&mut self, blocks: &[Node], from: usize) {
        self.outlines.truncate(from);
        let mut outline = self.outlines.last().copied().unwrap_or_default();
        for (index, block) in blocks.iter().enumerate().skip(from) {
            let old = self.shown.get(index);
            patch_at(&self.document, &self.host, old, block, &mut self.mounted, index, &mut outline);
            self.outlines.push(outline);
        }
        remove(&self.host, &mut self.mounted, blocks.len());
        // Each block runs as its own text does, and what is in it with it: a list or a quote as a whole.
        for block in self.mounted.iter().skip(from) {
            if let Some(element) = block.node.dyn_ref::<Element>().filter(|element| !element.has_attribute("dir")) {
                let _ = element.set_attribute("dir", "auto");
            }
        }
        self.shown.truncate(from);
        self.shown.extend_from_slice(&blocks[from..]);
    }
}

/// Brings the child of `host` at `index` from `old` to `new`, or adds it.
fn patch_at(
    document: &Document,
    host: &web_sys::Node,
    old: Option<&Node>,
    new: &Node,
    mounted: &mut Vec<Mounted>,
    index: usize,
    outline: &mut Outline,
) {
    match (old, mounted.get_mut(index)) {
        (Some(old), Some(place)) => patch(document, host, old, new, place, outline),
        _ => {
            let made = make(document, new, outline);
            let _ = host.append_child(&made.node);
            mounted.push(made);
        }
    }
}

/// Removes the children of `host` from `index` on.
fn remove(host: &web_sys::Node, mounted: &mut Vec<Mounted>, index: usize) {
    for surplus in mounted.drain(index.min(mounted.len())..) {
        let _ = host.remove_child(&surplus.node);
    }
}

fn patch(document: &Document, host: &web_sys::Node, old: &Node, new: &Node, place: &mut Mounted, outline: &mut Outline) {
    match (old, new) {
        (Node::Text(old), Node::Text(new)) => {
            let Some(data) = place.node.dyn_ref::<web_sys::CharacterData>() else { return };
            match new.strip_prefix(old.as_str()) {
                Some("") => {}
                Some(more) => {
                    let _ = data.append_data(more);
                }
                None => data.set_data(new),
            }
        }
        (Node::Element(old), Node::Element(new)) if old.tag == new.tag && fits(&place.node, &new.tag, *outline) => {
            if let Tag::Heading(level) = new.tag {
                outline.heading(level);
            }
            let parent = place.host.clone();
            for (index, child) in new.children.iter().enumerate() {
                patch_at(document, &parent, old.children.get(index), child, &mut place.children, index, outline);
            }
            remove(&parent, &mut place.children, new.children.len());
        }
        _ => {
            let made = make(document, new, outline);
            let _ = host.replace_child(&made.node, &place.node);
            *place = made;
        }
    }
}

/// Whether an element that shows such a tag is the right one here: that of a heading is another one below other headings.
fn fits(node: &web_sys::Node, tag: &Tag, mut outline: Outline) -> bool {
    match (tag, node.dyn_ref::<Element>()) {
        (Tag::Heading(level), Some(element)) => element.local_name() == outline.heading(*level),
        _ => true,
    }
}

fn make(document: &Document, node: &Node, outline: &mut Outline) -> Mounted {
    let element = match node {
        Node::Text(text) => {
            let node: web_sys::Node = document.create_text_node(text).into();
            return Mounted { host: node.clone(), node, children: Vec::new() };
        }
        Node::Element(element) => element,
    };
    let (node, host) = shell(document, &element.tag, outline);
    let mut children = Vec::with_capacity(element.children.len());
    for child in &element.children {
        let made = make(document, child, outline);
        let _ = host.append_child(&made.node);
        children.push(made);
    }
    Mounted { node: node.into(), host: host.into(), children }
}

#[expect(clippy::expect_used, reason = "it says why it cannot fail")]
fn create(document: &Document, name: &str) -> Element {
    document.create_element(name).expect("every name in this module is a valid one")
}

fn with(document: &Document, name: &str, attributes: &[(&str, &str)]) -> Element {
    let element = create(document, name);
    for (name, value) in attributes {
        let _ = element.set_attribute(name, value);
    }
    element
}

/// The element for a tag, and the one within it that takes the children.
fn shell(document: &Document, tag: &Tag, outline: &mut Outline) -> (Element, Element) {
    let plain = |name: &str| {
        let element = create(document, name);
        (element.clone(), element)
    };
    let one = |element: Element| (element.clone(), element);
    match tag {
        Tag::Paragraph => plain("p"),
        Tag::Heading(level) => one(with(document, outline.heading(*level), &[("class", &format!("h{level}"))])),
        Tag::Quote => plain("blockquote"),
        Tag::Rule => plain("hr"),
        Tag::List => plain("ul"),
        Tag::Ordered(first) => one(with(document, "ol", &[("start", &first.min(&999_999_999).to_string())])),
        Tag::Item => plain("li"),
        Tag::Check(done) => {
            let words = if *done { "done" } else { "not done" };
            let mark = with(
                document,
                "span",
                &[("class", if *done { "check done" } else { "check" }), ("role", "img"), ("aria-label", words)],
            );
            one(mark)
        }
        Tag::CodeBlock { language } => {
            let outer = with(document, "div", &[("class", "code"), ("dir", "ltr")]);
            let head = with(document, "div", &[("class", "code-head")]);
            let name = create(document, "span");
            name.set_text_content(Some(language));
            let copy = with(document, "button", &[("type", "button"), ("class", "copy"), ("data-copy", "code")]);
            copy.set_text_content(Some("Copy"));
            let pre = with(document, "pre", &[("tabindex", "0"), ("role", "group"), ("aria-label", "Code")]);
            let code = create(document, "code");
            let _ = pre.append_child(&code);
            let _ = head.append_child(&name);
            let _ = head.append_child(&copy);
            let _ = outer.append_child(&head);
            let _ = outer.append_child(&pre);
            (outer, code)
        }
        Tag::Raw => one(with(document, "p", &[("class", "raw")])),
        Tag::Code => plain("code"),
        Tag::Emphasis => plain("em"),
        Tag::Strong => plain("strong"),
        Tag::Strike => plain("s"),
        Tag::Break => plain("br"),
        Tag::Link(url) => one(with(
            document,
            "a",
            &[("href", url.as_str()), ("title", url.as_str()), ("target", "_blank"), ("rel", "noopener noreferrer nofollow")],
        )),
        Tag::Table => {
            let outer =
                with(document, "div", &[("class", "table"), ("tabindex", "0"), ("role", "group"), ("aria-label", "Table")]);
            let table = create(document, "table");
            let _ = outer.append_child(&table);
            (outer, table)
        }
        Tag::TableHead => plain("thead"),
        Tag::TableBody => plain("tbody"),
        Tag::Row => plain("tr"),
        Tag::HeadCell(align) => one(with(document, "th", &[("scope", "col"), ("class", align_class(*align))])),
        Tag::Cell(align) => one(with(document, "td", &[("class", align_class(*align))])),
    }
}

fn align_class(align: Align) -> &'static str {
    match align {
        Align::Start => "start",
        Align::Center => "center",
        Align::End => "end",
    }
}
