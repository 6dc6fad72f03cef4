//! The program as people install it: one that runs on old distributions too, and a Debian package.
//!
//! The program itself makes its manual pages and completions, so a package never has those of
//! another version.

mod clean_root;
mod contents;
mod deb;
mod portable;

pub use clean_root::CleanRoot;
pub use contents::{Programs, fill};
pub use deb::{CargoDeb, deb};
pub use portable::portable;
