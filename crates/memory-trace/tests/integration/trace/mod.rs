//! Recordings of every format and version, real ones and hostile ones.

mod hostile;
mod lines;
mod pickler;
mod real;
mod versions;
