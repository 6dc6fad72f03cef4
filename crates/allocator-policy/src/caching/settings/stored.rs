//! The serialized form of the settings.

use super::{SettingError, Settings, in_order};
use gpu_core::Bytes;
use serde::{Deserialize, Serialize};

/// The serialized settings.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    /// The settings in PyTorch's form.
    settings: String,
    #[serde(rename = "limit_bytes", default, skip_serializing_if = "Option::is_none")]
    limit: Option<Bytes>,
}

impl From<Settings> for Written {
    fn from(settings: Settings) -> Self {
        Written { settings: settings.to_string(), limit: settings.limit }
    }
}

impl TryFrom<Written> for Settings {
    type Error = SettingError;

    fn try_from(written: Written) -> Result<Self, SettingError> {
        let mut settings = Settings::default();
        for (key, value) in in_order(&written.settings)? {
            settings.set_or_keep(key, value)?;
        }
        settings.limit = written.limit;
        Ok(settings)
    }
}
