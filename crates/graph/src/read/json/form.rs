//! The fields of the form; docs/graph-formats.md describes them.

use super::{Attr, BTreeMap, ValueType};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(default)]
    pub(super) schema: Option<u64>,
    #[serde(default)]
    pub(super) nodes: Vec<Node>,
    #[serde(default)]
    pub(super) functions: Vec<Function>,
    #[serde(default)]
    pub(super) ops: Vec<Op>,
    #[serde(default)]
    pub(super) kernels: Vec<Kernel>,
    #[serde(default)]
    pub(super) devices: Option<Vec<String>>,
    #[serde(default)]
    pub(super) remote_devices: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    #[serde(deserialize_with = "not_empty")]
    pub(super) name: String,
    #[serde(deserialize_with = "not_empty")]
    pub(super) op: String,
    #[serde(default)]
    pub(super) inputs: Vec<String>,
    #[serde(default)]
    pub(super) device: String,
    #[serde(default)]
    pub(super) colocate_with: Vec<String>,
    #[serde(default, deserialize_with = "unique")]
    pub(super) attrs: BTreeMap<String, Attr>,
    #[serde(default)]
    pub(super) outputs: Option<Vec<Output>>,
    #[serde(default)]
    pub(super) nanos: Option<Nanos>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Function {
    #[serde(deserialize_with = "not_empty")]
    pub(super) name: String,
    #[serde(default)]
    pub(super) inputs: Vec<Argument>,
    #[serde(default)]
    pub(super) outputs: Vec<Argument>,
    #[serde(default, deserialize_with = "unique")]
    pub(super) attrs: BTreeMap<String, Option<Attr>>,
    #[serde(default)]
    pub(super) stateful: bool,
    #[serde(default)]
    pub(super) nodes: Vec<Node>,
    #[serde(default, deserialize_with = "unique")]
    pub(super) returns: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Op {
    #[serde(deserialize_with = "not_empty")]
    pub(super) name: String,
    #[serde(default)]
    pub(super) inputs: Vec<Argument>,
    #[serde(default)]
    pub(super) outputs: Vec<Argument>,
    #[serde(default, deserialize_with = "unique")]
    pub(super) attrs: BTreeMap<String, Option<Attr>>,
    #[serde(default)]
    pub(super) stateful: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Argument {
    pub(super) name: String,
    #[serde(default, rename = "type")]
    pub(super) of: Option<Type>,
    #[serde(default)]
    pub(super) type_attr: Option<String>,
    #[serde(default)]
    pub(super) type_list_attr: Option<String>,
    #[serde(default)]
    pub(super) number_attr: Option<String>,
    #[serde(default)]
    pub(super) reference: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    #[serde(deserialize_with = "not_empty")]
    pub(super) op: String,
    #[serde(deserialize_with = "not_empty")]
    pub(super) device: String,
    #[serde(default)]
    pub(super) priority: i32,
    #[serde(default, deserialize_with = "unique")]
    pub(super) constraints: BTreeMap<String, Vec<Type>>,
    #[serde(default)]
    pub(super) host_memory: Vec<String>,
    #[serde(default)]
    pub(super) nanos: Option<u64>,
}

/// The name of an element type.
#[derive(Clone, Copy)]
pub(super) struct Type(pub(super) ValueType);

impl<'de> Deserialize<'de> for Type {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Type;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an element type, such as \"float\"")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Type, E> {
                let known = ValueType::named(name).map(Type);
                known.ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// An output: a type, or an object with a type.
pub(super) struct Output {
    pub(super) of: Type,
    pub(super) shape: Option<Vec<i64>>,
    pub(super) bytes: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputFields {
    #[serde(rename = "type")]
    of: Type,
    #[serde(default)]
    shape: Option<Vec<i64>>,
    #[serde(default)]
    bytes: Option<u64>,
}

impl<'de> Deserialize<'de> for Output {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Output;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an element type, or an object with a type")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Output, E> {
                let known = ValueType::named(name);
                let known = known.ok_or_else(|| E::invalid_value(Unexpected::Str(name), &self))?;
                Ok(Output { of: Type(known), shape: None, bytes: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Output, A::Error> {
                let fields = OutputFields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Output { of: fields.of, shape: fields.shape, bytes: fields.bytes })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// The time of a node: on every device, or by type of device.
pub(super) enum Nanos {
    Everywhere(u64),
    ByType(BTreeMap<String, u64>),
}

impl<'de> Deserialize<'de> for Nanos {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Nanos;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of nanoseconds, or an object with one for each device type")
            }

            fn visit_u64<E: Error>(self, nanos: u64) -> Result<Nanos, E> {
                Ok(Nanos::Everywhere(nanos))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Nanos, A::Error> {
                unique(MapAccessDeserializer::new(map)).map(Nanos::ByType)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Reads a name that is not empty.
fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name.is_empty() {
        return Err(D::Error::invalid_value(Unexpected::Str(""), &"a name"));
    }
    Ok(name)
}

/// Reads an object whose keys are unique.
pub(super) fn unique<'de, D, V>(deserializer: D) -> Result<BTreeMap<String, V>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    struct Unique<V>(PhantomData<V>);
    impl<'de, V: Deserialize<'de>> Visitor<'de> for Unique<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = BTreeMap::new();
            while let Some(key) = map.next_key::<String>()? {
                if found.contains_key(&key) {
                    return Err(A::Error::custom(format_args!("duplicate key '{key}'")));
                }
                found.insert(key, map.next_value()?);
            }
            Ok(found)
        }
    }
    deserializer.deserialize_map(Unique(PhantomData))
}
