//! Placement of layers.
//!
//! All algorithms place the same [`crate::need::Chain`] into the same [`Rooms`], and [`measure`]
//! evaluates each result by the same rules, so that they can be compared. [`optimal()`] finds the
//! best placement of consecutive layers; [`first_fit`], [`balanced`], [`accelerate`] and [`llama`]
//! reproduce other tools.

mod answer;
mod baseline;
mod optimal;
mod picture;
mod plan;
mod room;
mod walk;

pub mod accelerate;
pub mod llama;
pub mod vllm;

pub use answer::{Answer, answer, candidates, largest_context};
pub use baseline::{balanced, first_fit};
pub use optimal::optimal;
pub use picture::picture;
pub use plan::{Cost, Lack, Moved, Objective, Split, Use, measure};
pub use room::{Room, RoomKind, Rooms};
