//! JSON Schemas for the output of `--json`, made from its types.

use crate::json::{self, SCHEMA, Version};
use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A named JSON Schema as text.
pub struct Document {
    /// The command that prints the object, with hyphens for spaces. A suffix distinguishes several
    /// objects of one command.
    pub name: &'static str,
    /// The schema as indented JSON.
    pub text: String,
}

/// Returns one schema for each object that `gpuws` prints.
pub fn documents() -> Vec<Document> {
    vec![
        document::<json::Claimed>("claim-hold", "gpuws claim --hold --json"),
        document::<json::Released>("claim-release", "gpuws claim --release --json"),
        document::<json::Wanted>("claim", "gpuws claim --json"),
        document::<json::Doctor<'_>>("doctor", "gpuws doctor --json"),
        document::<json::Holders<'_>>("holders", "gpuws holders --json"),
        document::<json::Hosts<'_>>("hosts", "gpuws status --host --json"),
        document::<json::Leases>("leases", "gpuws leases --json"),
        document::<json::Converted>("mem-convert", "gpuws mem convert --json"),
        document::<json::Bounded<'_>>("mem-env", "gpuws mem env --json"),
        document::<json::Explained<'_>>("mem-explain", "gpuws mem explain --json"),
        document::<json::Fitted<'_>>("mem-fit", "gpuws mem fit --json"),
        document::<json::Replayed<'_>>("mem-replay", "gpuws mem replay --json"),
        document::<gpu_text::Document>("parse", "gpuws parse --json"),
        document::<json::PlacedGraph<'_>>("place-graph", "gpuws place graph --json"),
        document::<json::RanGraph<'_>>("place-graph-run", "gpuws place graph --run --json"),
        document::<json::ScheduledGraph<'_>>(
            "place-graph-schedule",
            "gpuws place graph --schedule --json",
        ),
        document::<json::PlacedModel<'_>>("place-model", "gpuws place model --json"),
        document::<json::Reap<'_>>("reap", "gpuws reap --json"),
        document::<json::RecordedFile>("record", "gpuws record --json"),
        document::<json::Report>("report", "gpuws report --json"),
        document::<json::Reset>("reset", "gpuws reset --json"),
        document::<json::Run>("run", "gpuws run --json"),
        document::<json::Status>("status", "gpuws status --json"),
        document::<json::Topo<'_>>("topo", "gpuws topo --json"),
        document::<json::WatchEvent<'_>>("watch", "gpuws watch --json"),
    ]
}

fn document<T: JsonSchema>(name: &'static str, title: &str) -> Document {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(Closed);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    Document { name, text: format!("{:#}\n", schema.to_value()) }
}

/// Forbids fields without a schema, and reduces each description to one line of plain text.
#[derive(Clone)]
struct Closed;

impl Transform for Closed {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        if let Some(Value::String(description)) = schema.get_mut("description") {
            *description = description.replace('\n', " ").replace('`', "");
        }
        if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
            schema.insert("additionalProperties".to_owned(), false.into());
        }
    }
}

impl JsonSchema for Version {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "const": SCHEMA })
    }
}

impl JsonSchema for json::explain::Statistics<'_> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Statistics".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, u64>::json_schema(generator)
    }
}

/// The number of unreadable processes for each reason.
pub(crate) struct CountByReason;

impl JsonSchema for CountByReason {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "CountByReason".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = BTreeMap::<String, u32>::json_schema(generator);
        let reason = generator.subschema_for::<gpu_core::Absent>();
        schema.insert("propertyNames".to_owned(), reason.into());
        schema
    }
}
