//! The start of a list in an answer: a hostile host may list anything.

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// The first `N` elements of a list, and the number of the others.
#[derive(Debug)]
pub(super) struct Few<T, const N: usize> {
    items: Vec<T>,
    pub(super) left_out: usize,
}

impl<T, const N: usize> Default for Few<T, N> {
    fn default() -> Self {
        Few { items: Vec::new(), left_out: 0 }
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a Few<T, N> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for Few<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const N: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for List<T, N> {
            type Value = Few<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Few<T, N>, A::Error> {
                let mut few = Few::default();
                while few.items.len() < N {
                    match list.next_element()? {
                        Some(item) => few.items.push(item),
                        None => return Ok(few),
                    }
                }
                while list.next_element::<IgnoredAny>()?.is_some() {
                    few.left_out += 1;
                }
                Ok(few)
            }
        }

        deserializer.deserialize_seq(List(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_of_a_list_is_kept_and_the_rest_counted() {
        let few: Few<u8, 2> = serde_json::from_str("[1, 2, [3], {}]").unwrap();
        assert_eq!((&*few, few.left_out), (&[1, 2][..], 2));
        let all: Few<u8, 2> = serde_json::from_str("[1, 2]").unwrap();
        assert_eq!((all.len(), all.left_out), (2, 0));
        assert!(serde_json::from_str::<Few<u8, 2>>("[1, \"x\"]").is_err());
    }
}
