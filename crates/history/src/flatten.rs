//! Serializes a value to a [`Flat`].

use crate::shape::{Flat, IDENTITY, REASONS, Token};
use crate::texts::Texts;
use crate::varint::{self, zigzag};
use gpu_core::reading;
use serde::ser::{self, Serialize};
use std::fmt;

/// The value has a part that a shape cannot describe: bytes, or integers of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported;

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value has a part that no shape describes")
    }
}

impl std::error::Error for Unsupported {}

impl ser::Error for Unsupported {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Unsupported
    }
}

/// Returns a value as shape and numbers.
///
/// # Errors
/// If it contains a type that the form lacks: bytes, or integers of 128 bits.
pub(crate) fn flatten(value: &impl Serialize, texts: &mut Texts) -> Result<Flat, Unsupported> {
    let mut flat = Flat::default();
    value.serialize(&mut Flattener::new(&mut flat, texts))?;
    flat.end_row();
    // The shape was just made.
    flat.find_columns(texts.len()).ok_or(Unsupported)?;
    Ok(flat)
}

/// Appends a value to a [`Flat`].
pub(crate) struct Flattener<'a> {
    flat: &'a mut Flat,
    texts: &'a mut Texts,
    role: Role,
}

/// The role of the next value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// No special role.
    Value,
    /// An element of a list: a struct is then a row.
    Element,
    /// The identity of a row, if it is an integer.
    Identity,
    /// A key of a map.
    Key,
    /// The reason why a reading is absent.
    Reason,
}

impl<'a> Flattener<'a> {
    pub(crate) fn new(flat: &'a mut Flat, texts: &'a mut Texts) -> Self {
        Flattener { flat, texts, role: Role::Value }
    }

    fn token(&mut self, token: Token) {
        self.flat.shape.push(token as u8);
    }

    fn token_with(&mut self, token: Token, value: u64) {
        self.token(token);
        varint::put(&mut self.flat.shape, value);
    }

    fn number(&mut self, token: Token, number: u64) {
        self.role = Role::Value;
        self.token(token);
        self.flat.numbers.push(number);
    }

    fn integer(&mut self, value: u64) {
        if matches!(self.role, Role::Identity | Role::Key) {
            self.role = Role::Value;
            return self.token_with(Token::Identity, value);
        }
        match value.checked_add(REASONS.len() as u64) {
            Some(number) => self.number(Token::Reading, number),
            None => self.number(Token::Large, value),
        }
    }

    /// Appends a name that the program defines.
    fn name(&mut self, token: Token, name: &'static str) {
        let position = self.texts.position_of_name(name);
        self.token_with(token, position.into());
    }

    /// Starts a value with parts; returns whether it is an element of a list.
    ///
    /// # Errors
    /// For the key of a map, which has no parts.
    fn start(&mut self) -> Result<bool, Unsupported> {
        match std::mem::replace(&mut self.role, Role::Value) {
            Role::Key | Role::Reason => Err(Unsupported),
            role => Ok(role == Role::Element),
        }
    }

    fn value_in(
        &mut self,
        role: Role,
        value: &(impl Serialize + ?Sized),
    ) -> Result<(), Unsupported> {
        self.role = role;
        value.serialize(&mut *self)?;
        self.role = Role::Value;
        Ok(())
    }
}

impl<'b, 'a> ser::Serializer for &'b mut Flattener<'a> {
    type Ok = ();
    type Error = Unsupported;
    type SerializeSeq = Parts<'b, 'a>;
    type SerializeTuple = Parts<'b, 'a>;
    type SerializeTupleStruct = Parts<'b, 'a>;
    type SerializeTupleVariant = Parts<'b, 'a>;
    type SerializeMap = Parts<'b, 'a>;
    type SerializeStruct = Parts<'b, 'a>;
    type SerializeStructVariant = Parts<'b, 'a>;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, value: bool) -> Result<(), Unsupported> {
        self.number(Token::Bool, value.into());
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Result<(), Unsupported> {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), Unsupported> {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), Unsupported> {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<(), Unsupported> {
        match u64::try_from(value) {
            Ok(value) => self.integer(value),
            Err(_) => self.number(Token::Negative, zigzag(value)),
        }
        Ok(())
    }

    fn serialize_u8(self, value: u8) -> Result<(), Unsupported> {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), Unsupported> {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), Unsupported> {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), Unsupported> {
        self.integer(value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Unsupported> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Unsupported> {
        self.number(Token::Float, value.to_bits());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Unsupported> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Unsupported> {
        let position = self.texts.position(value).into();
        match self.role {
            Role::Key => self.token_with(Token::Name, position),
            _ => self.number(Token::Text, position),
        }
        Ok(())
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Unsupported> {
        Err(Unsupported)
    }

    fn serialize_none(self) -> Result<(), Unsupported> {
        self.start()?;
        self.token(Token::Null);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unsupported> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unsupported> {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Unsupported> {
        self.serialize_none()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Unsupported> {
        match self.role {
            Role::Key => self.name(Token::Name, variant),
            Role::Reason => {
                let reason = REASONS.iter().position(|reason| *reason == variant);
                self.number(Token::Reading, reason.ok_or(Unsupported)? as u64);
            }
            _ => {
                let position = self.texts.position_of_name(variant);
                self.number(Token::Variant, position.into());
            }
        }
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unsupported> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Unsupported> {
        match (name, index) {
            (reading::NAME, 0) => return value.serialize(self),
            (reading::NAME, _) => return self.value_in(Role::Reason, value),
            _ => {}
        }
        self.start()?;
        self.name(Token::Content, variant);
        value.serialize(self)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Parts<'b, 'a>, Unsupported> {
        self.start()?;
        self.token_with(Token::List, len.ok_or(Unsupported)? as u64);
        Ok(Parts { to: self, is_row: false })
    }

    fn serialize_tuple(self, len: usize) -> Result<Parts<'b, 'a>, Unsupported> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        len: usize,
    ) -> Result<Parts<'b, 'a>, Unsupported> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Parts<'b, 'a>, Unsupported> {
        self.start()?;
        self.name(Token::Content, variant);
        self.serialize_seq(Some(len))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Parts<'b, 'a>, Unsupported> {
        self.start()?;
        self.token_with(Token::Map, len.ok_or(Unsupported)? as u64);
        Ok(Parts { to: self, is_row: false })
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Parts<'b, 'a>, Unsupported> {
        let is_row = self.start()?;
        if is_row {
            self.flat.end_row();
        }
        self.token_with(Token::Struct, len as u64);
        Ok(Parts { to: self, is_row })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Parts<'b, 'a>, Unsupported> {
        self.start()?;
        self.name(Token::Content, variant);
        self.serialize_struct(name, len)
    }
}

/// The parts of a list, a map or a struct.
pub(crate) struct Parts<'b, 'a> {
    to: &'b mut Flattener<'a>,
    is_row: bool,
}

impl ser::SerializeSeq for Parts<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsupported> {
        self.to.value_in(Role::Element, value)
    }

    fn end(self) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl ser::SerializeTuple for Parts<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsupported> {
        self.to.value_in(Role::Element, value)
    }

    fn end(self) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl ser::SerializeTupleStruct for Parts<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsupported> {
        self.to.value_in(Role::Element, value)
    }

    fn end(self) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl ser::SerializeTupleVariant for Parts<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsupported> {
        self.to.value_in(Role::Element, value)
    }

    fn end(self) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl ser::SerializeMap for Parts<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unsupported> {
        self.to.flat.end_row();
        self.to.value_in(Role::Key, key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsupported> {
        value.serialize(&mut *self.to)?;
        self.to.flat.end_row();
        Ok(())
    }

    fn end(self) -> Result<(), Unsupported> {
        Ok(())
    }
}

impl ser::SerializeStruct for Parts<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Unsupported> {
        self.to.name(Token::Name, name);
        let role = if IDENTITY.contains(&name) { Role::Identity } else { Role::Value };
        self.to.value_in(role, value)
    }

    fn end(self) -> Result<(), Unsupported> {
        if self.is_row {
            self.to.flat.end_row();
        }
        Ok(())
    }
}

impl ser::SerializeStructVariant for Parts<'_, '_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Unsupported> {
        ser::SerializeStruct::serialize_field(self, name, value)
    }

    fn end(self) -> Result<(), Unsupported> {
        ser::SerializeStruct::end(self)
    }
}
