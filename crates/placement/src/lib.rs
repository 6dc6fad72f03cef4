//! Chooses which devices a job gets.
//!
//! The main decision is to judge a choice by the devices that it leaves. A claim on k devices gets
//! the best set of the best division of *all* free devices into sets of k, so that later claims
//! still find well connected devices. [`choose`] is a pure function from plain data to a [`Choice`]
//! or a [`Refusal`], each with its reasons.
//!
//! ```
//! use gpu_core::{Absent, Bytes, Claim, DeviceId, DeviceUuid, Link, Topology};
//! use gpu_placement::{Bar, Offer, choose};
//!
//! let memory = Ok(Bytes::from_mib(40_960));
//! let offer = |index| Offer {
//!     id: DeviceId {
//!         uuid: Ok(DeviceUuid(format!("GPU-{index}"))),
//!         ..DeviceId::from_index(index)
//!     },
//!     capacity: memory,
//!     free: memory,
//!     room: memory,
//!     compute_capability: Err(Absent::NotRecorded),
//!     shared_with_host: false,
//!     display: false,
//!     temperature: Err(Absent::NotRecorded),
//!     last_leased: None,
//!     bar: None,
//! };
//! // Two pairs of devices, each connected by NVLink. Another process uses the first device.
//! let mut offers: Vec<Offer> = (0..4).map(offer).collect();
//! offers[0].bar = Some(Bar::Unexplained(Bytes::from_mib(7_168)));
//! let (x, nv, sys) = (Link::Itself, Link::NvLink(4), Link::Sys);
//! let links = [[x, nv, sys, sys], [nv, x, sys, sys], [sys, sys, x, nv], [sys, sys, nv, x]];
//! let topology = Topology { links: links.map(Vec::from).into(), ..Topology::default() };
//!
//! // One device: the one whose partner is in use, so that the other pair stays whole.
//! let one = choose(&Claim::whole(1), &offers, Some(&topology)).expect("three are free");
//! assert_eq!(one.devices, [1]);
//! let two = choose(&Claim::whole(2), &offers, Some(&topology)).expect("three are free");
//! assert_eq!(two.devices, [2, 3]);
//! // Four: not now, and the refusal has the reason for each device.
//! assert!(choose(&Claim::whole(4), &offers, Some(&topology)).is_err());
//! ```

mod choose;
mod diagram;
mod filter;
mod matrix;
mod offer;
mod partition;
mod rules;
mod scores;
mod search;

pub use choose::choose;
pub use diagram::picture;
pub use matrix::Matrix;
pub use offer::{Bar, Choice, Offer, Passed, Refusal, Why};
pub use partition::MAX_EXACT;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
