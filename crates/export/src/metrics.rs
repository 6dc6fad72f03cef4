//! The values of one snapshot, and their two text formats.

use crate::catalog::{Kind, Metric};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The longest value of a label, in characters.
const MOST_CHARACTERS: usize = 128;

/// A text format of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Returns the format that an `Accept` header prefers: the text format unless OpenMetrics is
    /// named with at least the same weight.
    pub fn preferred(accept: &str) -> Self {
        let (mut text, mut open) = (0.0_f32, 0.0_f32);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let (mut weight, mut is_known) = (1.0, true);
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                match key.trim() {
                    "q" => weight = value.trim().parse().unwrap_or(0.0),
                    "version" => is_known = ["1.0.0", "0.0.1"].contains(&value.trim()),
                    _ => {}
                }
            }
            match name {
                "application/openmetrics-text" if is_known => open = open.max(weight),
                "text/plain" | "text/*" => text = text.max(weight),
                _ => {}
            }
        }
        if open > 0.0 && open >= text { Format::OpenMetrics } else { Format::Text }
    }

    /// Returns the value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => prometheus_text::CONTENT_TYPE,
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The labels of a sample, in the order of the catalog. A label without a value is left out.
pub(crate) type Labels = Box<[(&'static str, String)]>;

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    /// The sum, and the number of values up to each bound; the last bound is infinite.
    Histogram {
        sum: f64,
        buckets: Vec<(f64, u64)>,
    },
}

/// The values of one snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    families: BTreeMap<Metric, Vec<(Labels, Value)>>,
}

impl Metrics {
    /// Returns the values while a snapshot does not end: the driver has not answered.
    pub fn without_answer() -> Self {
        let mut metrics = Metrics::default();
        metrics.add_version();
        metrics.add(Metric::Up, [], 0.0);
        metrics
    }

    /// Returns the value of a sample with these labels; `None` if there is none.
    pub fn value(&self, metric: Metric, labels: &[(&str, &str)]) -> Option<f64> {
        let (_, value) = self.families.get(&metric)?.iter().find(|(own, _)| {
            labels.iter().all(|(name, value)| own.iter().any(|(n, v)| n == name && v == value))
        })?;
        match value {
            Value::Number(number) => Some(*number),
            Value::Histogram { sum, .. } => Some(*sum),
        }
    }

    /// Returns how many samples a family has.
    pub fn count(&self, metric: Metric) -> usize {
        self.families.get(&metric).map_or(0, Vec::len)
    }

    pub(crate) fn add_version(&mut self) {
        self.add(Metric::Build, [("version", env!("CARGO_PKG_VERSION"))], 1.0);
    }

    /// Adds a sample. Control characters of labels are escaped, and long values cut.
    pub(crate) fn add<const N: usize>(
        &mut self,
        metric: Metric,
        labels: [(&'static str, &str); N],
        value: f64,
    ) {
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
        let labels: Labels = labels.map(|(name, value)| (name, short(value))).collect();
        debug_assert!(labels.iter().all(|(name, _)| metric.family().labels.contains(name)));
        self.families.entry(metric).or_default().push((labels, Value::Number(value)));
    }

    pub(crate) fn add_histogram(&mut self, metric: Metric, sum: f64, buckets: Vec<(f64, u64)>) {
        let value = Value::Histogram { sum, buckets };
        self.families.entry(metric).or_default().push((Labels::default(), value));
    }

    /// Returns the page in a format.
    pub fn page(self: &Arc<Self>, format: Format) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Page(Arc::clone(self))));
        let mut page = String::new();
        let written = match format {
            Format::Text => prometheus_text::encode(&mut page, &registry),
            Format::OpenMetrics => text::encode(&mut page, &registry),
        };
        // Writing to a string does not fail.
        debug_assert!(written.is_ok());
        page
    }
}

/// Returns a label's value as it is exported.
fn short(value: &str) -> String {
    let value = gpu_core::clean(value);
    match value.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => value[..end].to_owned(),
        None => value.into_owned(),
    }
}

#[derive(Debug)]
struct Page(Arc<Metrics>);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, samples) in &self.0.families {
            let family = metric.family();
            let kind = match family.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
                Kind::Info => MetricType::Info,
                Kind::Histogram => MetricType::Histogram,
            };
            let unit = (!family.unit.is_empty()).then(|| Unit::Other(family.unit.to_owned()));
            let name = format!("gpuws_{}", family.stem);
            let mut described =
                encoder.encode_descriptor(&name, family.help, unit.as_ref(), kind)?;
            for (labels, value) in samples {
                match (labels.is_empty(), family.kind) {
                    (_, Kind::Info) => described.encode_info(&&labels[..])?,
                    (true, kind) => encode(&mut described, kind, value)?,
                    (false, kind) => {
                        encode(&mut described.encode_family(&&labels[..])?, kind, value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn encode(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> fmt::Result {
    match value {
        Value::Number(number) if kind == Kind::Counter => {
            encoder.encode_counter::<NoLabelSet, f64, f64>(number, None)
        }
        Value::Number(number) => encoder.encode_gauge(number),
        Value::Histogram { sum, buckets } => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
    }
}

/// Returns 1 or 0.
pub(crate) fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Returns thousandths of a unit in that unit: milliseconds as seconds, milliwatts as watts.
#[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
pub(crate) fn from_milli(thousandths: u64) -> f64 {
    thousandths as f64 / 1000.0
}

/// Returns a count or a size as Prometheus keeps it.
#[expect(clippy::cast_precision_loss, reason = "2^53 bytes are 8 PiB")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_negotiated_as_prometheus_asks() {
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Text),
            // Prometheus 2.42 and 3.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                 version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 text/plain;version=0.0.4;q=0.2",
                Format::OpenMetrics,
            ),
            ("text/plain, application/openmetrics-text;q=0.4", Format::Text),
            ("application/openmetrics-text; version=2.0.0", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;q=NaN", Format::Text),
            (";;;=,q=;,", Format::Text),
        ] {
            assert_eq!(Format::preferred(accept), format, "{accept}");
        }
    }

    #[test]
    fn hostile_labels_stay_labels_of_their_line() {
        let mut metrics = Metrics::default();
        let user = "a\"} 9\n# EOF\\\x1b[2J";
        metrics.add(Metric::UserGpus, [("user", user)], 2.0);
        metrics.add(Metric::UserGpus, [("user", &"x".repeat(1000))], 2.0);
        let metrics = Arc::new(metrics);
        let expected = r#"gpuws_user_gpus{user="a\"} 9\\n# EOF\\\\x1b[2J"} 2"#;
        for format in [Format::Text, Format::OpenMetrics] {
            let page = metrics.page(format);
            assert!(page.contains(expected), "{page}");
            assert!(page.lines().all(|line| line.starts_with(['#', 'g']) && line.len() < 200));
        }
    }

    #[test]
    fn formats_differ_in_the_names_of_families() {
        let mut metrics = Metrics::default();
        metrics.add(Metric::GpuEnergy, [("gpu", "0"), ("uuid", "")], 1.5);
        metrics.add(Metric::Gpu, [("gpu", "0"), ("name", "A100")], 1.0);
        metrics.add_histogram(Metric::ClaimWait, 7.0, vec![(1.0, 1), (f64::INFINITY, 2)]);
        let metrics = Arc::new(metrics);
        let text = metrics.page(Format::Text);
        assert!(text.contains("# TYPE gpuws_gpu_energy_joules_total counter\n"), "{text}");
        assert!(text.contains("gpuws_gpu_energy_joules_total{gpu=\"0\"} 1.5\n"), "{text}");
        assert!(text.contains("# TYPE gpuws_gpu_info gauge\n"), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
        let open = metrics.page(Format::OpenMetrics);
        assert!(open.contains("# TYPE gpuws_gpu_energy_joules counter\n"), "{open}");
        assert!(open.contains("# UNIT gpuws_gpu_energy_joules joules\n"), "{open}");
        assert!(open.contains("# TYPE gpuws_gpu info\n"), "{open}");
        assert!(open.contains("gpuws_gpu_info{gpu=\"0\",name=\"A100\"} 1\n"), "{open}");
        assert!(open.contains("gpuws_claim_wait_seconds_bucket{le=\"+Inf\"} 3\n"), "{open}");
        assert!(open.contains("gpuws_claim_wait_seconds_count 3\n"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
    }
}
