//! Replays: recorded jobs against their recordings, synthetic ones against brute force.

mod needs;
mod recorded;
mod recorder;
mod synthetic;
