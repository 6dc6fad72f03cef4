//! Output in the forms of other tools, for the scripts that read them.
//!
//! Names, units, order and the words for what is absent are those of the other tool; the first
//! line of every output names a simulated machine, and here that line goes to standard error.

pub(crate) mod csv;
pub(crate) mod gpustat;
