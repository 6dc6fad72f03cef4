//! Details as JSON shows them: null for an absent value, and its reason in one list for all groups.

use super::{AccountedProcess, Accounting, ErrorsByPlace, MemoryErrors, NvLink};
use crate::absent::{Absent, Reading};
use serde::Serialize;
use std::collections::BTreeMap;

/// The reasons of absent values, by group and field: `clocks.sm_mhz`.
pub(super) type Reasons = BTreeMap<String, Absent>;

/// A group of details that JSON shows.
pub(super) trait Shown {
    type View;

    /// Returns the object of the group, and notes the reasons of its absent values.
    fn shown(self, group: &str, absent: &mut Reasons) -> Self::View;
}

/// Returns the value, or notes why it is absent, under the last of its names.
pub(super) fn known<T>(
    absent: &mut Reasons,
    group: &str,
    names: &[&str],
    reading: Reading<T>,
) -> Option<T> {
    let name = names.last().copied().unwrap_or_default();
    reading.map_err(|reason| absent.insert(format!("{group}.{name}"), reason)).ok()
}

/// NVLink of the GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "NvLink"))]
pub(super) struct NumberedLink {
    /// Index of the link. Null if unknown.
    link_index: usize,
    #[serde(flatten)]
    link: <NvLink as Shown>::View,
}

impl Shown for Vec<NvLink> {
    type View = Vec<NumberedLink>;

    fn shown(self, group: &str, _: &mut Reasons) -> Self::View {
        let numbered = |(link_index, link): (usize, NvLink)| NumberedLink {
            link_index,
            link: link.shown(group, &mut Reasons::new()),
        };
        self.into_iter().enumerate().map(numbered).collect()
    }
}

/// Errors of the memories of the GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "MemoryErrors"))]
pub(super) struct ShownErrors {
    /// Corrected errors since the driver was loaded.
    corrected: <ErrorsByPlace as Shown>::View,
    /// Uncorrected errors since the driver was loaded.
    uncorrected: <ErrorsByPlace as Shown>::View,
    /// Corrected errors over the lifetime of the GPU.
    corrected_lifetime: <ErrorsByPlace as Shown>::View,
    /// Uncorrected errors over the lifetime of the GPU.
    uncorrected_lifetime: <ErrorsByPlace as Shown>::View,
}

impl Shown for Box<MemoryErrors> {
    type View = ShownErrors;

    fn shown(self, group: &str, absent: &mut Reasons) -> ShownErrors {
        let mut shown =
            |name, errors: ErrorsByPlace| errors.shown(&format!("{group}.{name}"), absent);
        ShownErrors {
            corrected: shown("corrected", self.corrected),
            uncorrected: shown("uncorrected", self.uncorrected),
            corrected_lifetime: shown("corrected_lifetime", self.corrected_lifetime),
            uncorrected_lifetime: shown("uncorrected_lifetime", self.uncorrected_lifetime),
        }
    }
}

/// Accounting data of processes, kept by the driver.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Accounting"))]
pub(super) struct ShownAccounting {
    /// Capacity of the buffer; the oldest entry is overwritten. Null if unknown.
    buffer_count: Option<u32>,
    /// The processes. Empty if accounting is off. Null if unknown.
    processes: Option<Vec<<AccountedProcess as Shown>::View>>,
}

impl Shown for Accounting {
    type View = ShownAccounting;

    fn shown(self, group: &str, absent: &mut Reasons) -> ShownAccounting {
        let shown = |process: AccountedProcess| process.shown(group, &mut Reasons::new());
        ShownAccounting {
            buffer_count: known(absent, group, &["buffer_count"], self.buffer_size),
            processes: known(absent, group, &["processes"], self.processes)
                .map(|processes| processes.into_iter().map(shown).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::absent::Absent;
    use crate::details::{Activity, DetailsView, DeviceDetails, Fabric, NvLink, ThrottleReasons};
    use serde_json::{Value, json};

    fn shown(details: DeviceDetails) -> Value {
        serde_json::to_value(details.view()).unwrap()
    }

    #[test]
    fn absent_values_are_null_with_a_reason_under_their_json_name() {
        let activity = Activity { performance_state: Ok(2), ..Activity::absent(Absent::TooOld) };
        let json = shown(DeviceDetails { activity: Some(activity), ..DeviceDetails::default() });
        assert_eq!(json["activity"]["performance_state"], "P2");
        assert_eq!(json["activity"]["encoder_session_count"], Value::Null);
        let named: Vec<_> = json["absent"].as_object().unwrap().keys().cloned().collect();
        let fields = json["activity"].as_object().unwrap();
        let nulls = fields.iter().filter(|(_, value)| value.is_null());
        assert_eq!(named, nulls.map(|(name, _)| format!("activity.{name}")).collect::<Vec<_>>());
        assert!(json["absent"].as_object().unwrap().values().all(|reason| reason == "too-old"));
        assert_eq!(json["clocks"], Value::Null);
    }

    #[test]
    fn throttle_reasons_are_names_and_code() {
        let activity = Activity { throttle: Ok(ThrottleReasons(0x8004)), ..Activity::default() };
        let json = shown(DeviceDetails { activity: Some(activity), ..DeviceDetails::default() });
        assert_eq!(json["activity"]["throttle_reasons"], json!(["software power cap"]));
        assert_eq!(json["activity"]["throttle_code"], 0x8004);
    }

    #[test]
    fn links_are_numbered_and_fields_of_files_alone_are_left_out() {
        let links = vec![NvLink::default(), NvLink { version: Ok(4), ..NvLink::default() }];
        let details = DeviceDetails {
            nvlinks: Some(links),
            fabric: Some(Fabric::absent(Absent::Failed)),
            ..DeviceDetails::default()
        };
        let json = shown(details);
        assert_eq!(json["nvlinks"][1]["link_index"], 1);
        assert_eq!(json["nvlinks"][1]["version"], "4");
        assert_eq!(json["fabric"], json!({ "state": null, "status_code": null }));
        assert_eq!(
            json["absent"],
            json!({ "fabric.state": "failed", "fabric.status_code": "failed" })
        );
    }

    #[test]
    fn failed_query_has_one_reason() {
        let json = serde_json::to_value(DetailsView::unknown(Absent::NoAnswer)).unwrap();
        assert_eq!(json["absent"], json!({ "details": "no-answer" }));
        assert!(
            json.as_object()
                .unwrap()
                .iter()
                .all(|(name, group)| name == "absent" || group.is_null())
        );
    }
}
