//! A policy by name, with its settings.

use crate::bfc::{self, Bfc};
use crate::caching::{self, Caching};
use crate::failure::Failure;
use crate::model::ModelMemory;
use crate::policy::Policy;
use gpu_core::{Bytes, DeviceMemory};

/// Which policy a job is run under.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// PyTorch's caching allocator.
    Caching(caching::Settings),
    /// TensorFlow's and XLA's allocator.
    Bfc(bfc::Settings),
}

/// Why a policy cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// There is none of that name.
    #[error("find the policy '{0}': there are {names}", names = Choice::NAMES.join(", "))]
    Unknown(String),
    /// PyTorch's allocator has no such setting.
    #[error(transparent)]
    Caching(#[from] caching::SettingError),
    /// TensorFlow's allocator has no such setting.
    #[error(transparent)]
    Bfc(#[from] bfc::SettingError),
}

impl Choice {
    /// The names that [`named`](Choice::named) takes.
    pub const NAMES: [&'static str; 4] = ["caching", "expandable", "bfc", "bfc-all-at-once"];

    /// Returns the policy of a name, with its framework's defaults.
    ///
    /// # Errors
    /// [`ChoiceError::Unknown`] for any other name.
    pub fn named(name: &str) -> Result<Self, ChoiceError> {
        let caching = caching::Settings::default;
        let bfc = |allow_growth| bfc::Settings { allow_growth, ..bfc::Settings::default() };
        Ok(match name {
            "caching" => Choice::Caching(caching()),
            "expandable" => {
                let mut settings = caching();
                settings.set("expandable_segments", "True")?;
                Choice::Caching(settings)
            }
            "bfc" => Choice::Bfc(bfc(true)),
            "bfc-all-at-once" => Choice::Bfc(bfc(false)),
            _ => return Err(ChoiceError::Unknown(name.to_owned())),
        })
    }

    /// Changes a setting of the policy, by its framework's name for it.
    ///
    /// # Errors
    /// [`ChoiceError`] where the policy has no such setting or does not take the value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ChoiceError> {
        match self {
            Choice::Caching(settings) => settings.set(key, value)?,
            Choice::Bfc(settings) => settings.set(key, value)?,
        }
        Ok(())
    }

    /// Returns what people call it.
    pub fn title(&self) -> &'static str {
        match self {
            Choice::Caching(settings) if settings.expandable_segments() => "caching, expandable",
            Choice::Caching(_) => "caching",
            Choice::Bfc(settings) if settings.allow_growth => "BFC, growth",
            Choice::Bfc(_) => "BFC, all at once",
        }
    }

    /// Makes the policy over a device.
    ///
    /// # Errors
    /// When the policy must know how much memory the device has and the device does not say.
    pub fn build<M: DeviceMemory + 'static>(&self, memory: M) -> Result<Box<dyn Policy>, Failure> {
        Ok(match self {
            Choice::Caching(settings) => Box::new(Caching::new(memory, settings.clone())?),
            Choice::Bfc(settings) => Box::new(Bfc::new(memory, *settings)?),
        })
    }

    /// Returns the policy with a limit on what it takes of the device.
    pub fn limited(&self, limit: Bytes) -> Self {
        let mut limited = self.clone();
        match &mut limited {
            Choice::Caching(settings) => settings.set_limit(Some(limit)),
            Choice::Bfc(settings) => settings.limit = Some(limit),
        }
        limited
    }

    /// Tells whether the policy sees nothing of its device but what that grants and refuses.
    pub(crate) fn sees_only_grants(&self) -> bool {
        match self {
            Choice::Caching(settings) => {
                settings.per_process_memory_fraction().is_none() && settings.limit().is_none()
            }
            Choice::Bfc(_) => false,
        }
    }

    /// Returns the policy as it is on a device of so much memory that is all its own.
    pub(crate) fn on(&self, total: Bytes) -> Self {
        match self {
            Choice::Caching(_) => self.clone(),
            // What TensorFlow takes is its limit, not what the device refuses.
            Choice::Bfc(settings) => {
                let least = settings.limit.map_or(total, |limit| limit.min(total));
                Choice::Bfc(bfc::Settings { limit: Some(least), ..*settings })
            }
        }
    }

    /// Makes the policy over a modelled device of so much memory.
    pub(crate) fn model(
        &self,
        total: Bytes,
    ) -> Result<(std::sync::Arc<ModelMemory>, Box<dyn Policy>), Failure> {
        let memory = std::sync::Arc::new(ModelMemory::new(total));
        let policy = self.on(total).build(memory.clone())?;
        Ok((memory, policy))
    }
}
