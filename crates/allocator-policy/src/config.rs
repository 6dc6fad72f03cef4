//! A policy by name, with its settings.

use crate::bfc::{self, Bfc};
use crate::caching::{self, Caching};
use crate::direct::Direct;
use crate::failure::Failure;
use crate::model::ModelMemory;
use crate::policy::Policy;
use crate::stream_ordered::{self, StreamOrdered};
use gpu_core::{Bytes, DeviceMemory, MemoryInfo, Region, Result};
use std::sync::Arc;

/// The policy of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyConfig {
    /// PyTorch's caching allocator.
    Caching(caching::Settings),
    /// TensorFlow's and XLA's allocator.
    Bfc(bfc::Settings),
    /// The driver's pool, as `cudaMallocAsync` uses it.
    StreamOrdered(stream_ordered::Settings),
    /// Calls the device for each request, like `cudaMalloc` and `cudaFree`.
    Direct,
}

/// Why a policy cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyConfigError {
    /// No such policy exists.
    #[error("unknown policy '{0}': {meant}", meant = meant(.0))]
    Unknown(String),
    /// PyTorch's allocator has no such setting.
    #[error(transparent)]
    Caching(#[from] caching::SettingError),
    /// TensorFlow's allocator has no such setting.
    #[error(transparent)]
    Bfc(#[from] bfc::SettingError),
    /// The driver's pool has no such setting.
    #[error(
        "set '{key}' to '{value}': the stream-ordered pool only has release_threshold, in bytes"
    )]
    Pool {
        /// The setting.
        key: String,
        /// The value.
        value: String,
    },
    /// The policy has no settings.
    #[error("set '{0}': the direct policy has no settings")]
    Nothing(String),
}

/// Returns a suggestion for an unknown name.
fn meant(unknown: &str) -> String {
    match caching::nearest(unknown, PolicyConfig::names()) {
        Some(name) => format!("did you mean '{name}'?"),
        None => format!("available: {}", PolicyConfig::names().collect::<Vec<_>>().join(", ")),
    }
}

/// Returns a policy with the defaults of its framework.
type Defaults = fn() -> PolicyConfig;

/// Every policy by name.
const NAMED: [(&str, Defaults); 6] = [
    ("caching", || PolicyConfig::Caching(caching::Settings::default())),
    ("expandable", || PolicyConfig::Caching(caching::Settings::expandable())),
    ("bfc", || PolicyConfig::Bfc(bfc::Settings { allow_growth: true, ..bfc::Settings::default() })),
    ("bfc-all-at-once", || {
        PolicyConfig::Bfc(bfc::Settings { allow_growth: false, ..bfc::Settings::default() })
    }),
    ("stream-ordered", || PolicyConfig::StreamOrdered(stream_ordered::Settings::default())),
    ("direct", || PolicyConfig::Direct),
];

impl PolicyConfig {
    /// Returns the names that [`named`](PolicyConfig::named) accepts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// More memory than any device has: a [`model`](PolicyConfig::model) of this size never
    /// refuses.
    pub const ENDLESS: Bytes = Bytes(1 << 50);

    /// Returns the policy with this name, with its framework's defaults.
    ///
    /// # Errors
    /// [`PolicyConfigError::Unknown`] for any other name.
    pub fn named(name: &str) -> Result<Self, PolicyConfigError> {
        let found = NAMED.iter().find(|(known, _)| *known == name);
        found.map(|(_, choice)| choice()).ok_or_else(|| PolicyConfigError::Unknown(name.to_owned()))
    }

    /// Changes a setting of the policy by its framework's name.
    ///
    /// # Errors
    /// [`PolicyConfigError`] if the policy has no such setting or does not accept the value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), PolicyConfigError> {
        match self {
            PolicyConfig::Caching(settings) => settings.set(key, value)?,
            PolicyConfig::Bfc(settings) => settings.set(key, value)?,
            PolicyConfig::StreamOrdered(settings) => match (key, value.parse()) {
                ("release_threshold", Ok(bytes)) => settings.release_threshold = Bytes(bytes),
                _ => {
                    return Err(PolicyConfigError::Pool {
                        key: key.to_owned(),
                        value: value.to_owned(),
                    });
                }
            },
            PolicyConfig::Direct => return Err(PolicyConfigError::Nothing(key.to_owned())),
        }
        Ok(())
    }

    /// Returns its usual name.
    pub fn title(&self) -> &'static str {
        match self {
            PolicyConfig::Caching(settings) if settings.expandable_segments() => {
                "caching, expandable"
            }
            PolicyConfig::Caching(_) => "caching",
            PolicyConfig::Bfc(settings) if settings.allow_growth => "TensorFlow (BFC)",
            PolicyConfig::Bfc(_) => "TensorFlow (BFC), all at once",
            PolicyConfig::StreamOrdered(_) => "cudaMallocAsync",
            PolicyConfig::Direct => "cudaMalloc",
        }
    }

    /// Creates the policy over a device.
    ///
    /// # Errors
    /// If the policy needs the device's total memory and the device does not report it.
    pub fn build<M: DeviceMemory + 'static>(&self, memory: M) -> Result<Box<dyn Policy>, Failure> {
        Ok(match self {
            PolicyConfig::Caching(settings) => Box::new(Caching::new(memory, settings.clone())?),
            PolicyConfig::Bfc(settings) => Box::new(Bfc::new(memory, *settings)?),
            PolicyConfig::StreamOrdered(settings) => {
                Box::new(StreamOrdered::new(memory, *settings))
            }
            PolicyConfig::Direct => Box::new(Direct::new(memory)),
        })
    }

    /// Returns the policy with a limit; a policy without its own limit is bounded by its device.
    pub fn limited(&self, limit: Bytes) -> Self {
        let mut limited = self.clone();
        match &mut limited {
            PolicyConfig::Caching(settings) => settings.set_limit(Some(limit)),
            PolicyConfig::Bfc(settings) => settings.limit = Some(limit),
            PolicyConfig::StreamOrdered(settings) => settings.largest = Some(limit),
            PolicyConfig::Direct => {}
        }
        limited
    }

    /// Returns whether the policy takes its whole limit at its first request.
    pub fn takes_all(&self) -> bool {
        match self {
            PolicyConfig::Bfc(settings) => !settings.allow_growth,
            PolicyConfig::Caching(_) | PolicyConfig::StreamOrdered(_) | PolicyConfig::Direct => {
                false
            }
        }
    }

    /// Returns whether the policy observes only the grants and refusals of its device.
    pub fn sees_only_grants(&self) -> bool {
        match self {
            PolicyConfig::Caching(settings) => {
                settings.per_process_memory_fraction().is_none() && settings.limit().is_none()
            }
            PolicyConfig::StreamOrdered(settings) => settings.largest.is_none(),
            PolicyConfig::Bfc(_) => false,
            PolicyConfig::Direct => true,
        }
    }

    /// Returns the policy for a device of this size that no other process uses.
    pub fn on(&self, total: Bytes) -> Self {
        match self {
            PolicyConfig::Caching(_) | PolicyConfig::StreamOrdered(_) | PolicyConfig::Direct => {
                self.clone()
            }
            // TensorFlow's allocator is bounded by its limit, not by refusals of the device.
            PolicyConfig::Bfc(settings) => {
                let least = settings.limit.map_or(total, |limit| limit.min(total));
                PolicyConfig::Bfc(bfc::Settings { limit: Some(least), ..*settings })
            }
        }
    }

    /// Creates the policy over a modelled device of this size; returns both.
    ///
    /// # Errors
    /// If the policy cannot be created.
    pub fn model(&self, total: Bytes) -> Result<(Arc<ModelMemory>, Box<dyn Policy>), Failure> {
        let memory = Arc::new(ModelMemory::new(total));
        let policy = if self.sees_only_grants() {
            self.build(Unsized(memory.clone()))?
        } else {
            self.on(total).build(memory.clone())?
        };
        Ok((memory, policy))
    }
}

/// A modelled device that does not report its size, so that values a policy derives from it (the
/// ranges of expandable segments) are the same for every size.
struct Unsized(Arc<ModelMemory>);

impl DeviceMemory for Unsized {
    fn info(&self) -> Result<MemoryInfo> {
        Ok(MemoryInfo { total: Ok(PolicyConfig::ENDLESS), ..self.0.info()? })
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        self.0.reserve(size)
    }

    fn release(&self, region: Region) -> Result<()> {
        self.0.release(region)
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        self.0.reserve_addresses(size)
    }

    fn map(&self, part: Region) -> Result<()> {
        self.0.map(part)
    }

    fn unmap(&self, part: Region) -> Result<()> {
        self.0.unmap(part)
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        self.0.release_addresses(range)
    }

    fn page(&self) -> Result<Bytes> {
        self.0.page()
    }
}
