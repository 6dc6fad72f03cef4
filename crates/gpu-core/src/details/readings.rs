//! Groups of readings, each as a whole.

use crate::absent::{Absent, Reading};

/// Operations on all readings of a group.
pub(super) trait Readings {
    /// Takes the values of `reported`, and its reasons of absence except `NotSupported`.
    fn overlay(&mut self, reported: &Self);

    /// Replaces the reason of absence `from` by `to`.
    fn restate(&mut self, from: Absent, to: Absent);
}

impl<T: Clone> Readings for Reading<T> {
    fn overlay(&mut self, reported: &Self) {
        if !matches!(reported, Err(Absent::NotSupported)) {
            self.clone_from(reported);
        }
    }

    fn restate(&mut self, from: Absent, to: Absent) {
        if self.as_ref().is_err_and(|absent| *absent == from) {
            *self = Err(to);
        }
    }
}

/// Repeated items are replaced as a whole.
impl<T: Readings + Clone> Readings for Vec<T> {
    fn overlay(&mut self, reported: &Self) {
        self.clone_from(reported);
    }

    fn restate(&mut self, from: Absent, to: Absent) {
        self.iter_mut().for_each(|readings| readings.restate(from, to));
    }
}

impl<T: Readings> Readings for Box<T> {
    fn overlay(&mut self, reported: &Self) {
        (**self).overlay(reported);
    }

    fn restate(&mut self, from: Absent, to: Absent) {
        (**self).restate(from, to);
    }
}

/// Defines groups of readings. Each field is `NotSupported` by default, also when a file leaves it
/// out.
macro_rules! groups {
    ($(
        $(#[$doc:meta])*
        $name:ident {
            $( $(#[$field_doc:meta])* $field:ident $(as $key:literal)? : $type:ty ),* $(,)?
        }
    )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[cfg_attr(feature = "serde", serde(with = "crate::reading" $(, rename = $key)?))]
                pub $field: $crate::absent::Reading<$type>,
            )*
        }

        impl $name {
            /// Returns the group with every value absent for `reason`.
            pub fn absent(reason: $crate::absent::Absent) -> Self {
                $name { $( $field: Err(reason), )* }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $name::absent($crate::absent::Absent::NotSupported)
            }
        }

        impl $crate::details::readings::Readings for $name {
            fn overlay(&mut self, reported: &Self) {
                $( self.$field.overlay(&reported.$field); )*
            }

            fn restate(&mut self, from: $crate::absent::Absent, to: $crate::absent::Absent) {
                $( self.$field.restate(from, to); )*
            }
        }
    )* };
}

pub(super) use groups;
