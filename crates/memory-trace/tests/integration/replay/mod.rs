//! Jobs replayed: recorded ones against their recordings, made ones against brute force.

mod needs;
mod recorded;
mod recorder;
mod synthetic;
