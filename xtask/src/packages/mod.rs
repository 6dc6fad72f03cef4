//! The program as users install it: a portable build for old distributions, and a Debian package.
//!
//! The program generates its own manual pages and completions, so those in a package always match
//! its version.

mod clean_root;
mod contents;
mod deb;
mod portable;

pub use clean_root::CleanRoot;
pub use contents::{Programs, fill};
pub use deb::{CargoDeb, deb};
pub use portable::portable;
