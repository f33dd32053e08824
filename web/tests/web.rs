//! What only a browser can show: Markdown and views as elements of a page.
#![cfg(target_arch = "wasm32")]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::{cell::RefCell, rc::Rc};

use turnfast_web::{
    markdown::{Document, parse},
    ui::{Child, Draft, Key, Mount, Rendered, element, text},
};
use wasm_bindgen::JsCast;
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};
use web_sys::{Element, HtmlElement, HtmlInputElement};

wasm_bindgen_test_configure!(run_in_browser);

fn page() -> web_sys::Document {
    web_sys::window().unwrap().document().unwrap()
}

/// An element in the page, so that what would load or run does.
fn host() -> Element {
    let host = page().create_element("div").unwrap();
    page().body().unwrap().append_child(&host).unwrap();
    host
}

fn render(text: &str) -> Element {
    let host = host();
    Rendered::new(host.clone(), page()).show(&parse(text), 0);
    host
}

#[wasm_bindgen_test]
fn ordinary_markdown_shows_as_elements() {
    let host = render("# A\n\n- *one*\n- **two**\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```rs\nfn x() {}\n```");
    assert_eq!(host.query_selector("h3.h1").unwrap().unwrap().text_content().unwrap(), "A");
    assert_eq!(host.query_selector_all("ul > li").unwrap().length(), 2);
    assert_eq!(host.query_selector("tbody td.end").unwrap().unwrap().text_content().unwrap(), "2");
    assert_eq!(host.query_selector("pre code").unwrap().unwrap().text_content().unwrap(), "fn x() {}\n");
    assert!(host.query_selector("[data-copy]").unwrap().is_some());
}

#[wasm_bindgen_test]
fn nothing_of_a_hostile_reply_comes_alive() {
    let sources = [
        "<script>window.broken = 1</script>",
        "<img src=x onerror=\"window.broken = 1\">",
        "![x](https://evil.example/pixel.png)",
        "[x](javascript:window.broken=1)",
        "[x](java&#10;script:window.broken=1) <a href=javascript:window.broken=1>y</a>",
        "<svg/onload=window.broken=1>\n\n<iframe srcdoc=\"<script>parent.broken=1</script>\"></iframe>",
        "```\"><script>window.broken=1</script>\nx\n```",
        "<style>*{display:none}</style>",
    ];
    for source in sources {
        let host = render(source);
        let alive =
            host.query_selector_all("script, img, iframe, svg, style, object, embed, form, input, link, [style]").unwrap();
        assert_eq!(alive.length(), 0, "{source}");
        let links = host.query_selector_all("a").unwrap();
        for index in 0..links.length() {
            let link: Element = wasm_bindgen::JsCast::unchecked_into(links.item(index).unwrap());
            assert!(link.get_attribute("href").unwrap().starts_with("https://"), "{source}");
            assert_eq!(link.get_attribute("rel").unwrap(), "noopener noreferrer nofollow");
            assert_eq!(link.get_attribute("target").unwrap(), "_blank");
        }
        let attributes = host.query_selector_all("*").unwrap();
        for index in 0..attributes.length() {
            let element: Element = wasm_bindgen::JsCast::unchecked_into(attributes.item(index).unwrap());
            for name in element.get_attribute_names().iter() {
                assert!(!name.as_string().unwrap().starts_with("on"), "{source}");
            }
        }
    }
    assert!(js_sys::Reflect::get(&js_sys::global(), &"broken".into()).unwrap().is_undefined());
}

#[wasm_bindgen_test]
fn a_reply_that_grows_keeps_its_elements_and_ends_as_a_whole_one() {
    let source = "# Title\n\nSome *text* and `code`.\n\n- one\n- two\n  - three\n\n```rust\nfn main() {\n    \
                  println!(\"hi\");\n}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nAfter https://example.org it ends.";
    let host = host();
    let (mut document, mut rendered) = (Document::default(), Rendered::new(host.clone(), page()));
    let mut heading: Option<web_sys::Node> = None;
    for end in (1..=source.len()).filter(|&end| source.is_char_boundary(end)) {
        if let Some(from) = document.update(&source[..end]) {
            rendered.show(document.blocks(), from);
        }
        if end > 12 {
            let first = host.first_child().unwrap();
            assert!(heading.as_ref().is_none_or(|heading| heading.is_same_node(Some(&first))), "the heading stayed at {end}");
            heading = Some(first);
        }
    }
    assert_eq!(host.inner_html(), render(source).inner_html());
}

#[wasm_bindgen_test]
fn each_block_runs_the_way_its_own_text_does() {
    let host = render("English.\n\nשלום עולם\n\n> مرحبا\n\n- שלום\n\n```rs\nfn שלום() {}\n```");
    let direction = |selector: &str| {
        let element = host.query_selector(selector).unwrap().unwrap();
        let style = web_sys::window().unwrap().get_computed_style(&element).unwrap().unwrap();
        style.get_property_value("direction").unwrap()
    };
    let found = ["p:nth-child(1)", "p:nth-child(2)", "blockquote", "ul", "pre"].map(direction);
    assert_eq!(found, ["ltr", "rtl", "rtl", "rtl", "ltr"]);
}

#[wasm_bindgen_test]
fn text_that_grows_keeps_its_text_node() {
    let host = host();
    let mut rendered = Rendered::new(host.clone(), page());
    rendered.show(&parse("one two"), 0);
    let text = host.first_child().unwrap().first_child().unwrap();
    rendered.show(&parse("one two three"), 0);
    assert!(host.first_child().unwrap().first_child().unwrap().is_same_node(Some(&text)));
    assert_eq!(text.text_content().unwrap(), "one two three");
    rendered.show(&parse("# other"), 0);
    assert_eq!(host.inner_html(), "<h3 class=\"h1\" dir=\"auto\">other</h3>");
    rendered.show(&[], 0);
    assert_eq!(host.inner_html(), "");
}

#[wasm_bindgen_test]
fn headings_skip_no_level_whatever_the_text_does() {
    let outline = |text: &str| {
        let host = render(text);
        let headings = host.query_selector_all("h3, h4, h5, h6").unwrap();
        let name = |at| headings.item(at).unwrap().unchecked_into::<Element>();
        (0..headings.length()).map(|at| [name(at).local_name(), name(at).class_name()].join(".")).collect::<Vec<_>>()
    };
    assert_eq!(outline("### a\n\n##### b\n\n### c\n\n#### d"), ["h3.h3", "h4.h5", "h3.h3", "h4.h4"]);
    assert_eq!(outline("## a\n\n> #### b\n\n# c\n\n- ###### d"), ["h3.h2", "h4.h4", "h3.h1", "h4.h6"]);
    assert_eq!(outline("# 1\n## 2\n### 3\n#### 4\n##### 5\n## 6").join(" "), "h3.h1 h4.h2 h5.h3 h6.h4 h6.h5 h4.h2");
    // What a heading is below can change while it is written.
    let host = host();
    let mut rendered = Rendered::new(host.clone(), page());
    for (text, last) in [("## a\n\n## b", "h3"), ("# a\n\n## b", "h4"), ("### a\n\n## b", "h3")] {
        rendered.show(&parse(text), 0);
        assert_eq!(host.last_element_child().unwrap().local_name(), last, "{text}");
    }
}

/// A mount, and the actions that its listeners asked for.
fn mount() -> (Element, Mount<&'static str>, Rc<RefCell<Vec<&'static str>>>) {
    let (host, acted) = (host(), Rc::<RefCell<Vec<&'static str>>>::default());
    let acts = Rc::clone(&acted);
    let mount = Mount::new(host.clone(), page(), Box::new(move |action, _, _| acts.borrow_mut().push(action)));
    (host, mount, acted)
}

fn item(id: usize, words: &str) -> Draft<&'static str> {
    element("li", &[]).key(Key::Number(id)).with(element("input", &[])).text(words.to_owned())
}

fn items(ids: &[usize]) -> Vec<Child<&'static str>> {
    ids.iter().map(|id| item(*id, &id.to_string()).done()).collect()
}

fn input(host: &Element, at: u32) -> HtmlInputElement {
    host.query_selector_all("input").unwrap().item(at).unwrap().unchecked_into()
}

#[wasm_bindgen_test]
fn children_with_keys_move_and_stay_the_same_elements() {
    let orders: [&[usize]; 8] =
        [&[1, 2, 3, 4, 5], &[5, 1, 2, 3, 4], &[1, 2, 3, 4, 5], &[2, 4], &[4, 9, 2], &[], &[7, 8, 4], &[8, 7, 6, 4]];
    let (host, mut mount, _) = mount();
    let mut before: Vec<(usize, web_sys::Node)> = Vec::new();
    for order in orders {
        mount.show(&items(order));
        let nodes = host.query_selector_all("li").unwrap();
        let after: Vec<_> = order.iter().enumerate().map(|(at, id)| (*id, nodes.item(at as u32).unwrap())).collect();
        assert_eq!(nodes.length() as usize, order.len());
        for (id, node) in &after {
            assert_eq!(node.text_content().unwrap(), id.to_string());
            let known = before.iter().find(|(known, _)| known == id);
            assert!(known.is_none_or(|(_, known)| known.is_same_node(Some(node))), "{id} in {order:?}");
        }
        before = after;
    }
}

#[wasm_bindgen_test]
fn focus_and_what_was_typed_survive_every_move() {
    let (host, mut mount, _) = mount();
    mount.show(&items(&[1, 2, 3]));
    let typed = input(&host, 0);
    typed.focus().unwrap();
    typed.set_value("mine");
    for order in [[3, 2, 1], [2, 1, 3], [1, 3, 2]] {
        mount.show(&items(&order));
        assert!(page().active_element().unwrap().is_same_node(Some(&typed)), "{order:?}");
        assert_eq!(typed.value(), "mine");
    }
    // What comes and goes around it changes nothing either.
    mount.show(&[item(9, "new").done(), item(1, "other words").done()]);
    assert!(page().active_element().unwrap().is_same_node(Some(&typed)));
    assert_eq!(host.text_content().unwrap(), "newother words");
}

#[wasm_bindgen_test]
fn listeners_do_what_was_said_last_and_go_with_their_elements() {
    let (host, mut mount, acted) = mount();
    let button = |action| element("button", &[]).on("click", action).done();
    mount.show(&[button("one"), element("p", &[]).with(element("b", &[]).on("click", "inner")).done()]);
    assert_eq!(mount.listening(), 2);
    let shown: HtmlElement = host.query_selector("button").unwrap().unwrap().unchecked_into();
    shown.click();
    mount.show(&[button("two")]);
    assert_eq!(mount.listening(), 1);
    shown.click();
    mount.show(&[element("button", &[]).done()]);
    shown.click();
    mount.show(&[button("three")]);
    shown.click();
    mount.show(&[]);
    shown.click();
    assert_eq!(mount.listening(), 0);
    assert_eq!(*acted.borrow(), ["one", "two", "three"]);
}

#[wasm_bindgen_test]
fn texts_and_attributes_change_in_place() {
    let (host, mut mount, _) = mount();
    let view = |class: &'static str, words: &'static str, busy: bool| {
        element("p", &[("id", "x")]).set("class", class).maybe("aria-busy", busy.then_some("true")).text(words).done()
    };
    mount.show(&[view("a", "one", true), text("end")]);
    assert_eq!(host.inner_html(), r#"<p id="x" class="a" aria-busy="true">one</p>end"#);
    let node = host.first_child().unwrap().first_child().unwrap();
    mount.show(&[view("b", "two", false), text("end")]);
    assert_eq!(host.inner_html(), r#"<p id="x" class="b">two</p>end"#);
    assert!(host.first_child().unwrap().first_child().unwrap().is_same_node(Some(&node)));
}

#[wasm_bindgen_test]
fn a_node_that_is_given_again_is_left_alone() {
    let (host, mut mount, _) = mount();
    let kept = item(1, "kept").done();
    mount.show(std::slice::from_ref(&kept));
    // Changed behind the mount's back: whoever looked would set it right.
    host.query_selector("li").unwrap().unwrap().set_attribute("class", "mark").unwrap();
    mount.show(&[kept, item(2, "more").done()]);
    assert_eq!(host.query_selector_all("li.mark").unwrap().length(), 1);
    assert_eq!(host.text_content().unwrap(), "keptmore");
}

#[wasm_bindgen_test]
fn new_elements_are_told_of_once_outer_ones_first() {
    let (_, mut mount, _) = mount();
    let view = || element("dialog", &[]).mounted("outer").with(element("input", &[]).mounted("inner")).done();
    let told = mount.show(&[view()]);
    assert!(told.iter().all(|(_, element)| element.is_connected()));
    assert_eq!(told.into_iter().map(|(action, _)| action).collect::<Vec<_>>(), ["outer", "inner"]);
    assert!(mount.show(&[view()]).is_empty());
}
