//! Pickles as Python writes them, and as it never would.

/// A value to write.
#[derive(Clone)]
pub(crate) enum Py {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'static str),
    List(Vec<Py>),
    Tuple(Vec<Py>),
    Dict(Vec<(&'static str, Py)>),
}

impl From<i64> for Py {
    fn from(number: i64) -> Self {
        Py::Int(number)
    }
}

impl From<&'static str> for Py {
    fn from(text: &'static str) -> Self {
        Py::Text(text)
    }
}

impl From<bool> for Py {
    fn from(bit: bool) -> Self {
        Py::Bool(bit)
    }
}

impl From<Vec<Py>> for Py {
    fn from(items: Vec<Py>) -> Self {
        Py::List(items)
    }
}

pub(crate) fn dict<const N: usize>(pairs: [(&'static str, Py); N]) -> Py {
    Py::Dict(pairs.into())
}

/// Serializes a value as a pickle of a protocol, 0 to 5.
pub(crate) fn pickle(value: &Py, protocol: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    if protocol >= 2 {
        bytes.extend([0x80, protocol]);
    }
    if protocol == 0 {
        as_text(value, &mut bytes)
    } else {
        as_bytes(value, protocol, &mut bytes)
    }
    bytes.push(b'.');
    bytes
}

fn as_text(value: &Py, bytes: &mut Vec<u8>) {
    match value {
        Py::None => bytes.push(b'N'),
        Py::Bool(bit) => bytes.extend(format!("I0{}\n", u8::from(*bit)).into_bytes()),
        Py::Int(number) => bytes.extend(format!("L{number}L\n").into_bytes()),
        Py::Float(number) => bytes.extend(format!("F{number}\n").into_bytes()),
        Py::Text(text) => {
            bytes.push(b'V');
            for character in text.chars() {
                match character {
                    ' '..='~' if character != '\\' => bytes.push(character as u8),
                    _ => bytes.extend(format!("\\U{:08x}", u32::from(character)).into_bytes()),
                }
            }
            bytes.push(b'\n');
        }
        Py::List(items) => {
            bytes.extend(b"(l");
            for item in items {
                as_text(item, bytes);
                bytes.push(b'a');
            }
        }
        Py::Tuple(items) => {
            bytes.push(b'(');
            items.iter().for_each(|item| as_text(item, bytes));
            bytes.push(b't');
        }
        Py::Dict(pairs) => {
            bytes.extend(b"(d");
            for (key, value) in pairs {
                as_text(&Py::Text(key), bytes);
                as_text(value, bytes);
                bytes.push(b's');
            }
        }
    }
}

fn as_bytes(value: &Py, protocol: u8, bytes: &mut Vec<u8>) {
    match value {
        Py::None => bytes.push(b'N'),
        Py::Bool(bit) if protocol >= 2 => bytes.push(if *bit { 0x88 } else { 0x89 }),
        Py::Bool(bit) => bytes.extend(format!("I0{}\n", u8::from(*bit)).into_bytes()),
        Py::Int(number) => match u8::try_from(*number) {
            Ok(small) => bytes.extend([b'K', small]),
            Err(_) if protocol >= 2 => {
                bytes.extend([0x8a, 8]);
                bytes.extend(number.to_le_bytes());
            }
            Err(_) => bytes.extend(format!("L{number}L\n").into_bytes()),
        },
        Py::Float(number) => {
            bytes.push(b'G');
            bytes.extend(number.to_be_bytes());
        }
        Py::Text(text) if protocol >= 4 && text.len() < 256 => {
            bytes.extend([0x8c, text.len() as u8]);
            bytes.extend(text.as_bytes());
        }
        Py::Text(text) => {
            bytes.push(b'X');
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        Py::List(items) => {
            bytes.extend(b"](");
            items.iter().for_each(|item| as_bytes(item, protocol, bytes));
            bytes.push(b'e');
        }
        Py::Tuple(items) => {
            bytes.push(b'(');
            items.iter().for_each(|item| as_bytes(item, protocol, bytes));
            bytes.push(b't');
        }
        Py::Dict(pairs) => {
            bytes.extend(b"}(");
            for (key, value) in pairs {
                as_bytes(&Py::Text(key), protocol, bytes);
                as_bytes(value, protocol, bytes);
            }
            bytes.push(b'u');
        }
    }
}
