//! What a view is made of: a small tree of plain values, made anew from the state whenever that changed.
//!
//! It knows nothing of the page's state, and nothing of the DOM: [`Mount`](super::Mount) brings it there. `A` is what listeners
//! stand for.

use std::{borrow::Cow, rc::Rc};

/// A node that can be kept: where a view gives the same [`Rc`] again, nothing below it is looked at.
pub type Child<A> = Rc<Node<A>>;

/// A piece of the page.
pub enum Node<A> {
    /// Text.
    Text(Cow<'static, str>),
    /// An element.
    Element(Element<A>),
    /// A `<div class="prose">` that shows Markdown.
    Prose(Box<dyn Prose>),
}

/// A Markdown text that may grow.
pub trait Prose {
    /// The text so far, and whether nothing will be appended to it.
    fn read(&self) -> (&str, bool);
}

/// What tells children of one element apart. Those with the same tag and key are the same child, wherever it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// Its tag and its place do.
    #[default]
    Place,
    /// A name.
    Name(&'static str),
    /// A number.
    Number(usize),
    /// An id.
    Id(u128),
}

/// An element and what is in it.
pub struct Element<A> {
    pub(super) tag: &'static str,
    pub(super) key: Key,
    pub(super) fixed: Fixed,
    pub(super) attributes: Vec<(&'static str, Cow<'static, str>)>,
    pub(super) value: Option<String>,
    pub(super) listeners: Vec<(&'static str, A)>,
    pub(super) mounted: Option<A>,
    pub(super) children: Vec<Child<A>>,
}

/// Attributes that never change.
pub type Fixed = &'static [(&'static str, &'static str)];

/// An element that is being described.
pub struct Draft<A>(Box<Element<A>>);

/// Describes an element; everything but its fixed attributes is added by the methods of [`Draft`].
#[must_use]
pub fn element<A>(tag: &'static str, fixed: Fixed) -> Draft<A> {
    Draft(Box::new(Element {
        tag,
        key: Key::Place,
        fixed,
        attributes: Vec::new(),
        value: None,
        listeners: Vec::new(),
        mounted: None,
        children: Vec::new(),
    }))
}

/// Text as a child.
#[must_use]
pub fn text<A>(text: impl Into<Cow<'static, str>>) -> Child<A> {
    Rc::new(Node::Text(text.into()))
}

/// Markdown as a child.
#[must_use]
pub fn prose<A>(prose: Box<dyn Prose>) -> Child<A> {
    Rc::new(Node::Prose(prose))
}

impl<A> Draft<A> {
    /// What tells it from its siblings.
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.0.key = key;
        self
    }

    /// An attribute.
    #[must_use]
    pub fn set(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.0.attributes.push((name, value.into()));
        self
    }

    /// An attribute that may be absent.
    #[must_use]
    pub fn maybe(mut self, name: &'static str, value: Option<&'static str>) -> Self {
        if let Some(value) = value {
            self.0.attributes.push((name, Cow::Borrowed(value)));
        }
        self
    }

    /// An attribute that says `true` or `false`.
    #[must_use]
    pub fn flag(self, name: &'static str, value: bool) -> Self {
        self.set(name, if value { "true" } else { "false" })
    }

    /// The value that a control has, whatever a person chose; given once its children are there.
    #[must_use]
    pub fn value(mut self, value: String) -> Self {
        self.0.value = Some(value);
        self
    }

    /// Does `action` on every `event`.
    #[must_use]
    pub fn on(mut self, event: &'static str, action: A) -> Self {
        self.0.listeners.push((event, action));
        self
    }

    /// Does `action` once the element is in the page; of an element and one within it, the outer comes first.
    #[must_use]
    pub fn mounted(mut self, action: A) -> Self {
        self.0.mounted = Some(action);
        self
    }

    /// Adds an element.
    #[must_use]
    pub fn with(self, child: Self) -> Self {
        self.child(child.done())
    }

    /// Adds an element, if there is one.
    #[must_use]
    pub fn with_some(self, child: Option<Self>) -> Self {
        match child {
            Some(child) => self.with(child),
            None => self,
        }
    }

    /// Adds text.
    #[must_use]
    pub fn text(self, words: impl Into<Cow<'static, str>>) -> Self {
        self.child(text(words))
    }

    /// Adds a child.
    #[must_use]
    pub fn child(mut self, child: Child<A>) -> Self {
        self.0.children.push(child);
        self
    }

    /// Adds children.
    #[must_use]
    pub fn children(mut self, children: Vec<Child<A>>) -> Self {
        self.0.children.extend(children);
        self
    }

    /// The described element.
    #[must_use]
    pub fn done(self) -> Child<A> {
        Rc::new(Node::Element(*self.0))
    }
}

impl<A> Node<A> {
    /// Whether what shows `self` can show `other` instead.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(_), Self::Text(_)) | (Self::Prose(_), Self::Prose(_)) => true,
            (Self::Element(one), Self::Element(other)) => one.tag == other.tag && one.key == other.key,
            _ => false,
        }
    }
}

impl<A> Element<A> {
    /// All attributes.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.fixed.iter().copied().chain(self.attributes.iter().map(|(name, value)| (*name, &**value)))
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}
