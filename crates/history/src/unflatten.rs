//! Deserializes a value from its shape and its numbers.

use crate::shape::{Flat, MAX_DEPTH, REASONS, Token};
use crate::varint::unzigzag;
use gpu_core::reading;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Visitor};
use std::fmt;
use std::sync::Arc;

/// The shape does not describe the expected type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

impl de::Error for Malformed {
    fn custom<T: fmt::Display>(what: T) -> Self {
        // Some messages quote the input, which may be long.
        Malformed(what.to_string().chars().take(200).collect())
    }
}

fn malformed() -> Malformed {
    Malformed("malformed shape".to_owned())
}

/// Returns the value that this form describes.
///
/// # Errors
/// If it is not the form of such a value.
pub(crate) fn unflatten<T: DeserializeOwned>(
    flat: &Flat,
    texts: &[Arc<str>],
) -> Result<T, Malformed> {
    let (shape, numbers) = (&flat.shape[..], &flat.numbers[..]);
    let mut source = Unflattener { shape, numbers, texts, depth: 0 };
    let value = T::deserialize(&mut source)?;
    if source.shape.is_empty() && source.numbers.is_empty() { Ok(value) } else { Err(malformed()) }
}

struct Unflattener<'a> {
    shape: &'a [u8],
    numbers: &'a [u64],
    texts: &'a [Arc<str>],
    depth: usize,
}

impl<'a> Unflattener<'a> {
    fn token(&mut self) -> Result<(Token, u64), Malformed> {
        Token::take(&mut self.shape).ok_or_else(malformed)
    }

    /// Returns the next token without taking it.
    fn next(&self) -> Result<(Token, u64), Malformed> {
        Token::take(&mut { self.shape }).ok_or_else(malformed)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let (first, rest) = self.numbers.split_first().ok_or_else(malformed)?;
        self.numbers = rest;
        Ok(*first)
    }

    fn text(&self, position: u64) -> Result<&'a str, Malformed> {
        let text = usize::try_from(position).ok().and_then(|at| self.texts.get(at));
        text.map(|text| &**text).ok_or_else(malformed)
    }

    /// Returns why the next reading is absent; `None` if it is a value.
    fn reason(&mut self) -> Result<Option<&'static str>, Malformed> {
        if self.next()?.0 != Token::Reading {
            return Ok(None);
        }
        let first = self.numbers.first().ok_or_else(malformed)?;
        let Some(reason) = usize::try_from(*first).ok().and_then(|at| REASONS.get(at)) else {
            return Ok(None);
        };
        self.token()?;
        self.number()?;
        Ok(Some(reason))
    }

    /// Reads `count` parts of a list, map or struct.
    fn parts<T>(
        &mut self,
        count: u64,
        read: impl FnOnce(Parts<'_, 'a>) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(malformed());
        }
        let mut left = usize::try_from(count).map_err(|_| malformed())?;
        let value = read(Parts { from: self, left: &mut left })?;
        self.depth -= 1;
        // A visitor of a fixed length leaves the rest.
        if left == 0 { Ok(value) } else { Err(malformed()) }
    }
}

impl<'de> de::Deserializer<'de> for &mut Unflattener<'de> {
    type Error = Malformed;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        let (token, value) = self.token()?;
        match token {
            Token::Null => visitor.visit_unit(),
            Token::Bool => match self.number()? {
                0 => visitor.visit_bool(false),
                1 => visitor.visit_bool(true),
                _ => Err(malformed()),
            },
            Token::Reading => {
                match self.number()?.checked_sub(REASONS.len() as u64) {
                    Some(number) => visitor.visit_u64(number),
                    // Absent, in a field that this version does not know.
                    None => visitor.visit_unit(),
                }
            }
            Token::Large => visitor.visit_u64(self.number()?),
            Token::Negative => visitor.visit_i64(unzigzag(self.number()?)),
            Token::Float => visitor.visit_f64(f64::from_bits(self.number()?)),
            Token::Text | Token::Variant => {
                let position = self.number()?;
                visitor.visit_borrowed_str(self.text(position)?)
            }
            Token::Identity => visitor.visit_u64(value),
            Token::Name => visitor.visit_borrowed_str(self.text(value)?),
            Token::List => self.parts(value, |parts| visitor.visit_seq(parts)),
            Token::Map | Token::Struct => self.parts(value, |parts| visitor.visit_map(parts)),
            // The content of a variant can be skipped, but not read as a separate value.
            Token::Content => {
                self.parts(0, |parts| {
                    de::Deserialize::deserialize(parts.from).map(|_: de::IgnoredAny| ())
                })?;
                visitor.visit_unit()
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.next()?.0 {
            Token::Null => {
                self.token()?;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        if name == reading::NAME {
            let reason = self.reason()?;
            return visitor.visit_enum(Reading { from: self, reason });
        }
        visitor.visit_enum(Enum(self))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The parts of a list, a map or a struct.
struct Parts<'b, 'a> {
    from: &'b mut Unflattener<'a>,
    left: &'b mut usize,
}

impl Parts<'_, '_> {
    /// Returns how many parts are left, but no more than the shape can contain.
    fn hint(&self) -> usize {
        (*self.left).min(self.from.shape.len())
    }
}

impl<'de> de::SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Malformed;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Malformed> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        *self.left = left;
        seed.deserialize(&mut *self.from).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.hint())
    }
}

impl<'de> de::MapAccess<'de> for Parts<'_, 'de> {
    type Error = Malformed;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Malformed> {
        de::SeqAccess::next_element_seed(self, seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Malformed> {
        seed.deserialize(&mut *self.from)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.hint())
    }
}

/// A reading: absent for a reason, or a value.
struct Reading<'b, 'a> {
    from: &'b mut Unflattener<'a>,
    reason: Option<&'static str>,
}

impl<'b, 'de> de::EnumAccess<'de> for Reading<'b, 'de> {
    type Error = Malformed;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Malformed> {
        let variant = if self.reason.is_some() { "absent" } else { "value" };
        Ok((seed.deserialize(de::value::StrDeserializer::new(variant))?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Reading<'_, 'de> {
    type Error = Malformed;

    fn unit_variant(self) -> Result<(), Malformed> {
        Err(malformed())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Malformed> {
        match self.reason {
            Some(reason) => seed.deserialize(de::value::StrDeserializer::new(reason)),
            None => seed.deserialize(self.from),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Malformed> {
        Err(malformed())
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Malformed> {
        Err(malformed())
    }
}

/// Any other enum.
struct Enum<'b, 'a>(&'b mut Unflattener<'a>);

impl<'b, 'de> de::EnumAccess<'de> for Enum<'b, 'de> {
    type Error = Malformed;
    type Variant = Content<'b, 'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Content<'b, 'de>), Malformed> {
        let (token, value) = self.0.token()?;
        let (position, has_content) = match token {
            Token::Variant | Token::Text => (self.0.number()?, false),
            // The key of a map.
            Token::Name => (value, false),
            Token::Content => (value, true),
            _ => return Err(malformed()),
        };
        let name = self.0.text(position)?;
        let variant = seed.deserialize(de::value::BorrowedStrDeserializer::new(name))?;
        Ok((variant, Content { from: self.0, has_content }))
    }
}

/// The content of an enum variant.
struct Content<'b, 'a> {
    from: &'b mut Unflattener<'a>,
    has_content: bool,
}

impl<'de> Content<'_, 'de> {
    /// Reads the content, which is one level deeper.
    fn read<T>(
        self,
        read: impl FnOnce(&mut Unflattener<'de>) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        if !self.has_content {
            return Err(malformed());
        }
        self.from.parts(0, |parts| read(parts.from))
    }
}

impl<'de> de::VariantAccess<'de> for Content<'_, 'de> {
    type Error = Malformed;

    fn unit_variant(self) -> Result<(), Malformed> {
        if self.has_content { Err(malformed()) } else { Ok(()) }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Malformed> {
        self.read(|from| seed.deserialize(from))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Malformed> {
        self.read(|from| de::Deserializer::deserialize_any(from, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.read(|from| de::Deserializer::deserialize_any(from, visitor))
    }
}
