//! Values of attributes: JSON types represent themselves, all others are an object with one key.

use super::form::{Type, unique};
use crate::def::{Attr, Content};
use crate::dtype::Dtype;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Number;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Special {
    Type(Type),
    Shape(Option<Vec<i64>>),
    Tensor(Tensor),
    Function(Called),
    Placeholder(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tensor {
    #[serde(default)]
    dtype: Option<Type>,
    #[serde(default)]
    shape: Option<Vec<i64>>,
    #[serde(default)]
    values: Option<Vec<Number>>,
}

impl Tensor {
    /// Returns its elements, if it has any.
    ///
    /// # Errors
    /// If it has elements of an unknown type, or one that is not of its type.
    fn content(&self) -> Result<Option<Box<Content>>, String> {
        let Some(values) = &self.values else { return Ok(None) };
        let dtype = self.dtype.map(|of| of.0.dtype);
        let mut bytes = Vec::new();
        for value in values {
            let whole = value.as_i64();
            let wrong = || format!("the value {value} is not of the type of the tensor");
            match dtype {
                Some(Dtype::FLOAT) => {
                    bytes.extend((value.as_f64().ok_or_else(wrong)? as f32).to_le_bytes());
                }
                Some(Dtype::DOUBLE) => {
                    bytes.extend(value.as_f64().ok_or_else(wrong)?.to_le_bytes())
                }
                Some(Dtype::INT32) => {
                    let whole = whole.and_then(|whole| i32::try_from(whole).ok());
                    bytes.extend(whole.ok_or_else(wrong)?.to_le_bytes());
                }
                Some(Dtype::INT64) => bytes.extend(whole.ok_or_else(wrong)?.to_le_bytes()),
                _ => return Err("values need the type float, double, int32 or int64".to_owned()),
            }
        }
        Ok(Some(Box::new(Content { bytes, is_list: true })))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Called {
    name: String,
    #[serde(default, deserialize_with = "unique")]
    attrs: BTreeMap<String, Attr>,
}

impl<'de> Deserialize<'de> for Attr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Value)
    }
}

struct Value;

impl<'de> Visitor<'de> for Value {
    type Value = Attr;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of an attribute")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Attr, E> {
        Ok(Attr::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Attr, E> {
        Ok(Attr::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Attr, E> {
        i64::try_from(value).map(Attr::Int).map_err(|_| E::custom("a number above 64 bits"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Attr, E> {
        Ok(Attr::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Attr, E> {
        Ok(Attr::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Attr, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Attr::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Attr, A::Error> {
        Ok(match Special::deserialize(MapAccessDeserializer::new(map))? {
            Special::Type(of) => Attr::Type(of.0),
            Special::Shape(shape) => Attr::Shape(shape),
            Special::Tensor(tensor) => {
                let content = tensor.content().map_err(A::Error::custom)?;
                let Tensor { dtype, shape, .. } = tensor;
                Attr::Tensor { dtype: dtype.map(|of| of.0.dtype), shape, content }
            }
            Special::Function(Called { name, attrs }) => Attr::Function(name, attrs),
            Special::Placeholder(name) => Attr::Placeholder(name),
        })
    }
}
