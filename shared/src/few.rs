//! A map for a handful of entries: a list that is searched. In a page, every kind of hash or tree map costs several kilobytes of
//! download; where a dozen entries are many, a list is also as fast.

use std::borrow::Borrow;

/// Values by key, few of them.
#[derive(Clone, Debug)]
pub struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: PartialEq, V> Few<K, V> {
    /// Sets the value of `key`.
    pub fn insert(&mut self, key: K, value: V) {
        match self.place(&key) {
            Some(place) => self.0[place].1 = value,
            None => self.0.push((key, value)),
        }
    }

    /// The value of `key`.
    pub fn get<Q: PartialEq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.place(key).map(|place| &self.0[place].1)
    }

    /// The value of `key`; where it has none, this one from now on.
    pub fn get_or_insert<Q: PartialEq + ToOwned<Owned = K> + ?Sized>(&mut self, key: &Q, value: V) -> &mut V
    where
        K: Borrow<Q>,
    {
        let place = self.place(key).unwrap_or_else(|| {
            self.0.push((key.to_owned(), value));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }

    /// Whether `key` has a value.
    pub fn has<Q: PartialEq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).is_some()
    }

    /// Takes the value of `key` out.
    pub fn remove<Q: PartialEq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.place(key).map(|place| self.0.remove(place).1)
    }

    /// Keeps what `keep` says, and drops the rest.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }

    /// All entries, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The last that came is what is mostly asked for.
    fn place<Q: PartialEq + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        self.0.iter().rposition(|(known, _)| known.borrow() == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map() {
        let mut few = Few::<String, u8>::default();
        few.insert("a".to_owned(), 1);
        few.insert("b".to_owned(), 2);
        few.insert("a".to_owned(), 3);
        assert_eq!(few.iter().map(|(key, value)| (key.as_str(), *value)).collect::<Vec<_>>(), [("a", 3), ("b", 2)]);
        *few.get_or_insert("b", 9) += 1;
        *few.get_or_insert("c", 9) += 1;
        assert_eq!((few.get("b"), few.get("c"), few.get("d")), (Some(&3), Some(&10), None));
        few.retain(|key, _| key != "c");
        assert_eq!((few.remove("a"), few.remove("a"), few.has("b"), few.has("c")), (Some(3), None, true, false));
    }
}
