//! A [`Reading`] as the bare value or as `{"absent": "not-supported"}`; for `#[serde(with =
//! "gpu_core::reading")]`.
//!
//! A binary format cannot distinguish bare values: there it is the enum [`NAME`] with the variants
//! `value` and `absent`.

use super::{Absent, Reading};
use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{
    DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, forward_to_deserialize_any};
use std::fmt;
use std::marker::PhantomData;

/// The name of the enum in binary formats.
pub const NAME: &str = "Reading";

/// The only key of a reading without a value.
const ABSENT: &str = "absent";

#[derive(Serialize)]
struct Missing {
    absent: Absent,
}

#[derive(Deserialize)]
#[serde(rename = "Reading", rename_all = "kebab-case")]
enum Tagged<T> {
    Value(T),
    Absent(Absent),
}

/// Serializes the value, or why it is missing.
pub fn serialize<T: Serialize, S: Serializer>(
    reading: &Reading<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match (reading, serializer.is_human_readable()) {
        (Ok(value), true) => value.serialize(serializer),
        (Err(absent), true) => Missing { absent: *absent }.serialize(serializer),
        (Ok(value), false) => serializer.serialize_newtype_variant(NAME, 0, "value", value),
        (Err(absent), false) => serializer.serialize_newtype_variant(NAME, 1, ABSENT, absent),
    }
}

/// Deserializes the output of [`serialize`].
///
/// # Errors
/// The deserializer's own, when the input is neither a value nor an absence.
pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Reading<T>, D::Error> {
    if deserializer.is_human_readable() {
        return deserializer.deserialize_any(Bare(PhantomData));
    }
    Ok(match Tagged::deserialize(deserializer)? {
        Tagged::Value(value) => Ok(value),
        Tagged::Absent(absent) => Err(absent),
    })
}

/// Distinguishes a bare value from an absence by the first key of a map. An untagged enum would
/// keep a copy of each value until it has tried both, and a snapshot has thousands of values.
struct Bare<T>(PhantomData<T>);

macro_rules! value {
    ($($visit:ident($value:ty))*) => {$(
        fn $visit<E: Error>(self, value: $value) -> Result<Self::Value, E> {
            T::deserialize(Plain(value.into_deserializer())).map(Ok)
        }
    )*};
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Bare<T> {
    type Value = Reading<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or the reason for its absence")
    }

    value!(visit_bool(bool) visit_u64(u64) visit_i64(i64) visit_f64(f64) visit_str(&str)
        visit_string(String));

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        T::deserialize(Plain(BorrowedStrDeserializer::new(value))).map(Ok)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        T::deserialize(().into_deserializer()).map(Ok)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        T::deserialize(Plain(SeqAccessDeserializer::new(seq))).map(Ok)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let first: Option<String> = map.next_key()?;
        if first.as_deref() != Some(ABSENT) {
            let map = MapAccessDeserializer::new(Map { first, rest: map });
            return T::deserialize(Plain(map)).map(Ok);
        }
        let absent = map.next_value()?;
        match map.next_key::<IgnoredAny>()? {
            None => Ok(Err(absent)),
            Some(_) => Err(A::Error::custom("an absent value has no other fields")),
        }
    }
}

/// A value in the data model of serde, which by itself is the content of neither a newtype nor an
/// option.
struct Plain<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Plain<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// A map whose first key has already been read.
struct Map<A> {
    first: Option<String>,
    rest: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Map<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(first) => seed.deserialize(first.into_deserializer()).map(Some),
            None => self.rest.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.rest.next_value_seed(seed)
    }
}
