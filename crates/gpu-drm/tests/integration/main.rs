//! The crate on files: those of real machines, with the values that a correct reader finds, and
//! made ones.

mod devices;

mod machines;
mod made;
