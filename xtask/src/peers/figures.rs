//! Named figures, so that tools with different output can be compared.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The figures of a tool: a device's as `DEVICE FIELD`, a process's as `DEVICE pid PID FIELD`; null
/// if the tool shows a figure as unavailable.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures(BTreeMap<String, Value>);

impl Figures {
    /// Adds a figure.
    pub(super) fn put(&mut self, name: String, value: impl Into<Value>) {
        self.0.insert(name, value.into());
    }

    /// Parses the output of the scripts in this directory.
    pub(super) fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Figures)
    }

    /// Returns the number of figures.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the figures of `gpuws status --json`, with each amount also as rounded by other
    /// tools.
    ///
    /// `real` maps simulated processes to the real ones that represent them.
    pub(super) fn of_status(status: &Value, real: &BTreeMap<u64, u64>) -> Self {
        let mut figures = Figures::default();
        for gpu in array(&status["gpus"]) {
            let index = &gpu["index"];
            for field in ["name", "uuid", "utilization_percent", "temperature_c"] {
                figures.put(format!("{index} {field}"), gpu[field].clone());
            }
            for field in ["memory_used", "memory_total"] {
                figures.put_memory(&format!("{index} {field}"), &gpu[format!("{field}_bytes")]);
            }
            let power = &gpu["power_draw_mw"];
            figures.put(format!("{index} power_draw_mw"), power.clone());
            let rounded = |by| power.as_u64().map(|power| f64::round(power as f64 / by) as u64);
            figures.put(format!("{index} power_draw_10mw"), rounded(10.0));
            figures.put(format!("{index} power_draw_w"), power.as_u64().map(|power| power / 1000));
            for process in array(&gpu["processes"]).iter().filter(|one| one["listed"] == true) {
                let Some(pid) = process["pid"].as_u64() else { continue };
                let pid = real.get(&pid).copied().unwrap_or(pid);
                figures.put_memory(&format!("{index} pid {pid} memory"), &process["memory_bytes"]);
            }
        }
        figures
    }

    fn put_memory(&mut self, name: &str, bytes: &Value) {
        self.put(format!("{name}_bytes"), bytes.clone());
        self.put(format!("{name}_mib"), bytes.as_u64().map(|bytes| bytes >> 20));
        let gib = |bytes| bytes as f64 / f64::from(1 << 30);
        let rounded = bytes.as_u64().map(|bytes| f64::round(gib(bytes) * 1000.0) as u64);
        self.put(format!("{name}_milligib"), rounded);
    }

    /// Keeps only the figures of these fields.
    pub(super) fn of_fields(mut self, fields: &[&str]) -> Self {
        self.0.retain(|name, _| fields.iter().any(|field| name.ends_with(&format!(" {field}"))));
        self
    }

    /// Keeps process figures only for the `wanted` processes.
    pub(super) fn of_processes(mut self, wanted: &dyn Fn(u64) -> bool) -> Self {
        self.0.retain(|name, _| pid_of(name).is_none_or(wanted));
        self
    }

    /// Returns every figure that differs in `shown`, is missing there, or exists only there.
    pub(super) fn differences(&self, shown: &Figures) -> Vec<Difference> {
        let names: BTreeSet<&String> = self.0.keys().chain(shown.0.keys()).collect();
        let differs = |name: &&String| self.0.get(*name) != shown.0.get(*name);
        let difference = |name: &String| Difference {
            name: name.clone(),
            expected: self.0.get(name).cloned(),
            shown: shown.0.get(name).cloned(),
        };
        names.into_iter().filter(differs).map(difference).collect()
    }
}

/// A figure on which two tools differ; `None` for a tool that does not show it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) name: String,
    pub(super) expected: Option<Value>,
    pub(super) shown: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |value: &Option<Value>| match value {
            None => "missing".to_owned(),
            Some(Value::Null) => "not available".to_owned(),
            Some(value) => value.to_string(),
        };
        let (shown, expected) = (word(&self.shown), word(&self.expected));
        write!(f, "GPU {}: {shown}, gpuws shows {expected}", self.name)
    }
}

/// Returns the process of a figure.
fn pid_of(name: &str) -> Option<u64> {
    name.split_once(" pid ")?.1.split(' ').next()?.parse().ok()
}

/// Returns the elements of an array; an empty slice for anything else.
pub(super) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status() -> Value {
        json!({ "gpus": [{
            "index": 0, "name": "A", "uuid": null, "utilization_percent": 3, "temperature_c": 30,
            "memory_used_bytes": 3 << 20, "memory_total_bytes": (5 << 20) + 1,
            "power_draw_mw": 1996,
            "processes": [
                { "pid": 7, "listed": true, "memory_bytes": 1 << 20 },
                { "pid": 8, "listed": true, "memory_bytes": null },
                { "pid": 9, "listed": false, "memory_bytes": null },
            ],
        }]})
    }

    #[test]
    fn status_converts_to_peer_units() {
        let figures = Figures::of_status(&status(), &BTreeMap::from([(7, 70)]));
        let fields = ["memory_total_mib", "power_draw_w", "power_draw_10mw", "memory_mib", "uuid"];
        let expected = json!({
            "0 memory_total_mib": 5, "0 power_draw_w": 1, "0 power_draw_10mw": 200, "0 uuid": null,
            "0 pid 70 memory_mib": 1, "0 pid 8 memory_mib": null,
        });
        assert_eq!(figures.of_fields(&fields), Figures::from_json(&expected.to_string()).unwrap());
    }

    #[test]
    fn changed_missing_and_extra_values_are_differences() {
        let figures = |value: Value| Figures::from_json(&value.to_string()).unwrap();
        let ours = figures(json!({ "0 name": "A", "0 uuid": "U", "0 pid 7 memory_mib": 5 }));
        assert_eq!(ours.differences(&ours), []);
        let theirs = figures(json!({ "0 name": "B", "0 uuid": null, "0 pid 8 memory_mib": 5 }));
        let reported: Vec<_> = ours.differences(&theirs).iter().map(ToString::to_string).collect();
        assert_eq!(
            reported,
            [
                "GPU 0 name: \"B\", gpuws shows \"A\"",
                "GPU 0 pid 7 memory_mib: missing, gpuws shows 5",
                "GPU 0 pid 8 memory_mib: 5, gpuws shows missing",
                "GPU 0 uuid: not available, gpuws shows \"U\"",
            ]
        );
        let left = theirs.of_processes(&|pid| pid == 7);
        assert_eq!(left, figures(json!({ "0 name": "B", "0 uuid": null })));
    }
}
