//! Lines of styled text, fitted to a width.
//!
//! Text from outside reaches a terminal only through [`Line`], which escapes control characters, so
//! that a process cannot move the cursor by its name. Widths are columns of a terminal.

mod bar;
mod line;
mod table;
mod wrap;

pub use bar::{bar, bar_of};
pub use line::{Line, Tone};
pub use table::{Align, Table};
pub use wrap::{below, flowed, packed, wrapped};
