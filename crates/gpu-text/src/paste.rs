//! Pasted text, which may be JSON or inside JSON.

use crate::text::{MAX_BYTES, Text, cleaned};
use crate::{escaped, gpustat_json, other};
use std::borrow::Cow;

/// Cleans `bytes` that may be a log with each text as a JSON string.
pub(crate) fn clean(bytes: &[u8]) -> Text {
    cleaned(bytes, MAX_BYTES, |text| {
        // This text is JSON itself, not text inside JSON.
        if gpustat_json::is_within(&text) || other::is_json_within(&text) {
            return text;
        }
        match escaped::unescaped(&text) {
            Cow::Owned(plain) => Cow::Owned(plain),
            Cow::Borrowed(_) => text,
        }
    })
}
