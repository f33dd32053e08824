//! Brings trees of [`Node`]s into the page, and keeps what is there as far as it can: an element stays the same one while its tag
//! and key do, so that focus, selection, scroll positions and what a person typed or unfolded survive every change around them.

use std::{cell::RefCell, rc::Rc};

use js_sys::{Function, Reflect};
use wasm_bindgen::{JsCast, closure::Closure};
use web_sys::{Document, Event, HtmlElement};

use super::{
    dom::Rendered,
    node::{Child, Element, Node, Prose},
};
use crate::markdown;

/// The property of an element that leads to its actions.
const ID: &str = "turnfastId";

/// The actions of each element that has listeners, at a place that it keeps.
type Actions<A> = Rc<RefCell<Vec<Option<Listening<A>>>>>;
type Listening<A> = Vec<(&'static str, A)>;

/// The children of one element of the page.
pub struct Mount<A> {
    root: web_sys::Element,
    shown: Vec<Mounted<A>>,
    patch: Patch<A>,
    /// The one listener that all elements have.
    _listener: Closure<dyn FnMut(Event)>,
}

/// A node in the page.
struct Mounted<A> {
    node: web_sys::Node,
    shown: Child<A>,
    children: Vec<Self>,
    /// Of an element that has listeners: the place of its actions.
    id: Option<usize>,
    prose: Option<Box<(markdown::Document, Rendered)>>,
}

/// What it takes to make and change nodes.
struct Patch<A> {
    document: Document,
    listener: Function,
    actions: Actions<A>,
    /// Places for actions that are free again.
    free: RefCell<Vec<usize>>,
    /// Actions of elements that are new, outer ones first.
    mounted: Vec<(A, web_sys::Element)>,
}

impl<A: Clone + 'static> Mount<A> {
    /// Shows nothing so far. `root` is to be empty, and left alone from now on. `act` is called with the action of a listener, its
    /// element, and the event.
    #[must_use]
    pub fn new(root: web_sys::Element, document: Document, act: Box<dyn Fn(A, web_sys::Element, Event)>) -> Self {
        let actions = Actions::<A>::default();
        let known = Rc::clone(&actions);
        let listener = Closure::<dyn FnMut(Event)>::new(move |event: Event| {
            let Some(element) = event.current_target().and_then(|target| target.dyn_into::<web_sys::Element>().ok()) else {
                return;
            };
            let id = Reflect::get(&element, &ID.into()).ok().and_then(|id| id.as_f64());
            let kind = event.type_();
            // Borrowed while the page is being changed; what that causes is not a person's doing.
            let action = id.zip(known.try_borrow().ok()).and_then(|(id, known)| {
                known.get(id as usize)?.as_ref()?.iter().find(|(name, _)| *name == kind).map(|(_, action)| action.clone())
            });
            if let Some(action) = action {
                act(action, element, event);
            }
        });
        let function = listener.as_ref().unchecked_ref::<Function>().clone();
        let patch = Patch { document, listener: function, actions, free: RefCell::default(), mounted: Vec::new() };
        Self { root, shown: Vec::new(), patch, _listener: listener }
    }

    /// Shows `children`. Returns what new elements want done, for the caller to do.
    pub fn show(&mut self, children: &[Child<A>]) -> Vec<(A, web_sys::Element)> {
        let focused = self.patch.document.active_element();
        self.patch.all(&self.root, &mut self.shown, children);
        // An element that was moved is the same, and yet has lost the focus.
        if let Some(focused) = focused
            && focused.is_connected()
            && self.patch.document.active_element().is_none_or(|now| !now.is_same_node(Some(&focused)))
            && let Ok(focused) = focused.dyn_into::<HtmlElement>()
        {
            let _ = focused.focus();
        }
        std::mem::take(&mut self.patch.mounted)
    }

    /// How many elements have listeners.
    #[must_use]
    pub fn listening(&self) -> usize {
        self.patch.actions.borrow().iter().flatten().count()
    }
}

impl<A: Clone> Patch<A> {
    /// Brings the children of `host` to `new`.
    fn all(&mut self, host: &web_sys::Node, shown: &mut Vec<Mounted<A>>, new: &[Child<A>]) {
        let same = |(shown, new): &(&Mounted<A>, &Child<A>)| shown.shown.is_like(new);
        let head = shown.iter().zip(new).take_while(same).count();
        for (place, new) in shown.iter_mut().zip(&new[..head]) {
            self.one(host, place, new);
        }
        if head == shown.len() && head == new.len() {
            return;
        }
        let tail = shown[head..].iter().rev().zip(new[head..].iter().rev()).take_while(same).count();
        let mut behind = shown.split_off(shown.len() - tail);
        for (place, new) in behind.iter_mut().zip(&new[new.len() - tail..]) {
            self.one(host, place, new);
        }
        // Between head and tail, those that go, come or move.
        let mut left: Vec<Option<Mounted<A>>> = shown.drain(head..).map(Some).collect();
        let middle = &new[head..new.len() - tail];
        let found: Vec<Option<Mounted<A>>> = middle
            .iter()
            .map(|new| left.iter_mut().find(|old| old.as_ref().is_some_and(|old| old.shown.is_like(new)))?.take())
            .collect();
        for surplus in left.into_iter().flatten() {
            let _ = host.remove_child(&surplus.node);
            self.forget(&surplus);
        }
        let mut next = match shown.last() {
            Some(last) => last.node.next_sibling(),
            None => host.first_child(),
        };
        for (found, new) in found.into_iter().zip(middle) {
            let place = match found {
                Some(mut place) => {
                    self.one(host, &mut place, new);
                    place
                }
                None => self.make(new),
            };
            if next.as_ref().is_some_and(|next| next.is_same_node(Some(&place.node))) {
                next = place.node.next_sibling();
            } else {
                let _ = host.insert_before(&place.node, next.as_ref());
            }
            shown.push(place);
        }
        shown.append(&mut behind);
    }

    /// Brings a node to `new`, which it is like.
    fn one(&mut self, host: &web_sys::Node, place: &mut Mounted<A>, new: &Child<A>) {
        if Rc::ptr_eq(&place.shown, new) {
            return;
        }
        let old = std::mem::replace(&mut place.shown, Rc::clone(new));
        match (&*old, &**new) {
            (Node::Text(old), Node::Text(new)) => {
                if old != new {
                    place.node.set_node_value(Some(new));
                }
            }
            (Node::Prose(_), Node::Prose(prose)) => {
                if let Some(state) = &mut place.prose {
                    read(state, &**prose);
                }
            }
            (Node::Element(old), Node::Element(new)) => {
                let Some(element) = place.node.dyn_ref::<web_sys::Element>() else { return };
                set_attributes(element, Some(old), new);
                self.listen(element, &mut place.id, &old.listeners, &new.listeners);
                let element = place.node.clone();
                self.all(&element, &mut place.children, &new.children);
                set_value(&element, new);
            }
            _ => {
                let made = self.make(new);
                let _ = host.replace_child(&made.node, &place.node);
                let before = std::mem::replace(place, made);
                self.forget(&before);
            }
        }
    }

    fn make(&mut self, new: &Child<A>) -> Mounted<A> {
        let plain = |node| Mounted { node, shown: Rc::clone(new), children: Vec::new(), id: None, prose: None };
        match &**new {
            Node::Text(text) => plain(self.document.create_text_node(text).into()),
            Node::Prose(prose) => {
                let host = self.create("div");
                let _ = host.set_attribute("class", "prose");
                let mut mounted = plain(host.clone().into());
                let mut state = Box::new((markdown::Document::default(), Rendered::new(host, self.document.clone())));
                read(&mut state, &**prose);
                mounted.prose = Some(state);
                mounted
            }
            Node::Element(new) => {
                let element = self.create(new.tag);
                let mut mounted = plain(element.clone().into());
                set_attributes(&element, None, new);
                self.listen(&element, &mut mounted.id, &[], &new.listeners);
                if let Some(action) = &new.mounted {
                    self.mounted.push((action.clone(), element.clone()));
                }
                mounted.children.reserve_exact(new.children.len());
                for child in &new.children {
                    let child = self.make(child);
                    let _ = element.append_child(&child.node);
                    mounted.children.push(child);
                }
                set_value(&element, new);
                mounted
            }
        }
    }

    #[expect(clippy::expect_used, reason = "it says why it cannot fail")]
    fn create(&self, tag: &'static str) -> web_sys::Element {
        let made = match tag {
            "svg" | "path" => self.document.create_element_ns(Some("http://www.w3.org/2000/svg"), tag),
            _ => self.document.create_element(tag),
        };
        made.expect("every tag of the page is a valid name")
    }

    fn listen(&self, element: &web_sys::Element, id: &mut Option<usize>, old: &[(&'static str, A)], new: &[(&'static str, A)]) {
        let lacks = |listeners: &[(&'static str, A)], event| !listeners.iter().any(|(known, _)| *known == event);
        for (event, _) in new.iter().filter(|(event, _)| lacks(old, *event)) {
            let _ = element.add_event_listener_with_callback(event, &self.listener);
        }
        for (event, _) in old.iter().filter(|(event, _)| lacks(new, *event)) {
            let _ = element.remove_event_listener_with_callback(event, &self.listener);
        }
        if new.is_empty() {
            self.unlisten(id.take());
            return;
        }
        let mut actions = self.actions.borrow_mut();
        let id = *id.get_or_insert_with(|| {
            let free = self.free.borrow_mut().pop().unwrap_or(actions.len());
            if free == actions.len() {
                actions.push(None);
            }
            let _ = Reflect::set(element, &ID.into(), &free.into());
            free
        });
        actions[id] = Some(new.to_vec());
    }

    fn unlisten(&self, id: Option<usize>) {
        if let Some(id) = id {
            self.actions.borrow_mut()[id] = None;
            self.free.borrow_mut().push(id);
        }
    }

    /// The actions of what is gone go too.
    fn forget(&self, gone: &Mounted<A>) {
        self.unlisten(gone.id);
        gone.children.iter().for_each(|child| self.forget(child));
    }
}

fn read((document, rendered): &mut (markdown::Document, Rendered), prose: &dyn Prose) {
    let (text, done) = prose.read();
    let changed = document.update(text);
    if let Some(from) = changed {
        rendered.show(document.blocks(), from);
    }
    if done && let Some(from) = document.finish() {
        rendered.show(document.blocks(), from);
    }
}

fn set_attributes<A>(element: &web_sys::Element, old: Option<&Element<A>>, new: &Element<A>) {
    for (name, value) in new.attributes() {
        if old.and_then(|old| old.attribute(name)) != Some(value) {
            let _ = element.set_attribute(name, value);
        }
    }
    for (name, _) in old.into_iter().flat_map(Element::attributes) {
        if new.attribute(name).is_none() {
            let _ = element.remove_attribute(name);
        }
    }
}

fn set_value<A>(element: &web_sys::Node, new: &Element<A>) {
    let Some(value) = &new.value else { return };
    let now = Reflect::get(element, &"value".into()).ok().and_then(|value| value.as_string());
    if now.as_deref() != Some(value) {
        let _ = Reflect::set(element, &"value".into(), &value.into());
    }
}
