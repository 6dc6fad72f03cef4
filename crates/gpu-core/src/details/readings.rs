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
///
/// A row is a field, its name in files (`as`, or `file` if JSON has another one), its name in JSON
/// (`as` or `json`), and its type. JSON shows the value itself, or `=> type = conversion`; a second
/// field of JSON from the same value is in braces. Rows after `;` are not in JSON. The doc comment of
/// a row is its description in the schema, with a sentence about null.
macro_rules! groups {
    ($(
        $(#[$doc:meta])*
        $name:ident $(named $view:literal)? {
            $(
                $(#[$field_doc:meta])*
                $field:ident $(as $key:literal)? $(file $file:literal)? $(json $json:literal)?:
                $type:ty $({
                    $(#[$also_doc:meta])*
                    $also:ident: $also_type:ty = $also_show:expr
                })? $(=> $shown:ty = $show:expr)?
            ),* $(,)?
            $(;
                $( $(#[$hidden_doc:meta])* $hidden:ident: $hidden_type:ty ),* $(,)?
            )?
        }
    )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[cfg_attr(
                    feature = "serde",
                    serde(with = "crate::reading" $(, rename = $key)? $(, rename = $file)?)
                )]
                pub $field: $crate::absent::Reading<$type>,
            )*
            $( $(
                $(#[$hidden_doc])*
                #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
                pub $hidden: $crate::absent::Reading<$hidden_type>,
            )* )?
        }

        impl $name {
            /// Returns the group with every value absent for `reason`.
            pub fn absent(reason: $crate::absent::Absent) -> Self {
                $name { $( $field: Err(reason), )* $( $( $hidden: Err(reason), )* )? }
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
                $( $( self.$hidden.overlay(&reported.$hidden); )* )?
            }

            fn restate(&mut self, from: $crate::absent::Absent, to: $crate::absent::Absent) {
                $( self.$field.restate(from, to); )*
                $( $( self.$hidden.restate(from, to); )* )?
            }
        }

        #[cfg(feature = "serde")]
        const _: () = {
            use $crate::details::shown::{Reasons, Shown, known};

            $(#[$doc])*
            #[derive(serde::Serialize)]
            #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
            $( #[cfg_attr(feature = "schema", schemars(rename = $view))] )?
            pub(super) struct $name {
                $(
                    $(
                        $(#[$also_doc])*
                        #[doc = " Null if unknown."]
                        $also: Option<$also_type>,
                    )?
                    $(#[$field_doc])*
                    #[doc = " Null if unknown."]
                    #[serde($(rename = $key)? $(rename = $json)?)]
                    $field: Option<$crate::details::readings::last_type!($type $(, $shown)?)>,
                )*
            }

            impl Shown for self::$name {
                type View = $name;

                fn shown(self, group: &str, absent: &mut Reasons) -> $name {
                    $name { $(
                        $(
                            $also: known(absent, group, &[stringify!($also)], self.$field)
                                .map($also_show),
                        )?
                        $field: known(
                            absent,
                            group,
                            &[stringify!($field) $(, $key)? $(, $json)?],
                            self.$field,
                        )
                        $(.map($show))?,
                    )* }
                }
            }
        };
    )* };
}

/// Stands for the last of one or two types.
#[cfg(feature = "serde")]
macro_rules! last_type {
    ($type:ty) => {
        $type
    };
    ($type:ty, $last:ty) => {
        $last
    };
}

pub(super) use groups;
#[cfg(feature = "serde")]
pub(super) use last_type;
