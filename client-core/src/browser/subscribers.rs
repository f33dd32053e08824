//! Callbacks that are called on every change, until their subscription is dropped.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

type Callback<T> = Rc<dyn Fn(&T)>;
type List<T> = RefCell<Vec<(u64, Callback<T>)>>;

/// A list of callbacks. A callback may subscribe, unsubscribe or cause the next call: the list is never borrowed during a call.
pub(crate) struct Subscribers<T> {
    next: Cell<u64>,
    list: Rc<List<T>>,
}

impl<T: 'static> Subscribers<T> {
    pub(crate) fn new() -> Self {
        Self { next: Cell::new(0), list: Rc::default() }
    }

    pub(crate) fn subscribe(&self, callback: impl Fn(&T) + 'static) -> Subscription {
        let key = self.next.replace(self.next.get() + 1);
        self.list.borrow_mut().push((key, Rc::new(callback)));
        let list: Weak<dyn Remove> = {
            let list: Rc<dyn Remove> = Rc::<List<T>>::clone(&self.list);
            Rc::downgrade(&list)
        };
        Subscription { list, key }
    }

    pub(crate) fn call(&self, value: &T) {
        let callbacks: Vec<_> = self.list.borrow().iter().map(|(_, callback)| Rc::clone(callback)).collect();
        for callback in callbacks {
            callback(value);
        }
    }
}

trait Remove {
    fn remove(&self, key: u64);
}

impl<T> Remove for List<T> {
    fn remove(&self, key: u64) {
        // The callback is dropped after the borrow ends: dropping it may drop another subscription of this list.
        let removed = {
            let mut list = self.borrow_mut();
            list.iter().position(|(k, _)| *k == key).map(|at| list.remove(at))
        };
        drop(removed);
    }
}

/// Keeps a callback subscribed; dropping it ends that.
#[must_use = "dropping it unsubscribes"]
pub struct Subscription {
    list: Weak<dyn Remove>,
    key: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(list) = self.list.upgrade() {
            list.remove(self.key);
        }
    }
}
