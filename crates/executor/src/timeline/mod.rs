//! Draws traces.

mod chrome;
mod svg;

pub use chrome::chrome;
pub use svg::svg;
