//! The kernel's own types (BTF), from `/sys/kernel/btf/vmlinux`: the numbers of two functions and
//! the offsets of a few fields.
//!
//! Format: `Documentation/bpf/btf.rst` of the kernel. The file has a header, the types one after
//! another, numbered from 1, and their names.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;

/// `BTF_KIND_…` of linux/btf.h with the bytes that follow the common part of a type: a fixed number
/// and a number for each member.
const KINDS: [(usize, usize); 20] = [
    (0, 0),  // void
    (4, 0),  // integer
    (0, 0),  // pointer
    (12, 0), // array
    (0, 12), // structure
    (0, 12), // union
    (0, 8),  // enumeration
    (0, 0),  // forward declaration
    (0, 0),  // typedef
    (0, 0),  // volatile
    (0, 0),  // const
    (0, 0),  // restrict
    (0, 0),  // function
    (0, 8),  // prototype
    (4, 0),  // variable
    (0, 12), // section
    (0, 0),  // floating point
    (4, 0),  // tag of a declaration
    (0, 0),  // tag of a type
    (0, 12), // enumeration of 64 bits
];
const STRUCTURE: usize = 4;
const FUNCTION: usize = 12;

/// The functions and fields to look up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted<'a> {
    pub(super) functions: &'a [&'a str],
    /// Structures with their fields.
    pub(super) fields: &'a [(&'a str, &'a [&'a str])],
}

/// The result of a lookup.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layout<'a> {
    /// The type number of each function.
    pub(super) functions: HashMap<&'a str, u32>,
    /// The offset of each field in bytes. A field that is inside an anonymous member, as with
    /// `CONFIG_RANDSTRUCT`, is not found.
    pub(super) fields: HashMap<(&'a str, &'a str), u32>,
    /// The size of each structure in bytes.
    pub(super) sizes: HashMap<&'a str, u32>,
}

/// Looks up functions and fields; `None` if the data is malformed or has an unknown kind.
pub(super) fn look_up<'a>(data: &[u8], wanted: Wanted<'a>) -> Option<Layout<'a>> {
    if u16_at(data, 0)? != MAGIC {
        return None;
    }
    let header = usize_at(data, 4)?;
    let section = |at: usize| {
        let start = header.checked_add(usize_at(data, at)?)?;
        data.get(start..start.checked_add(usize_at(data, at + 4)?)?)
    };
    let (mut types, names) = (section(8)?, section(16)?);
    let name = |at: usize| {
        let name = names.get(at..)?;
        name.split(|byte| *byte == 0).next()
    };
    let mut layout = Layout::default();
    let mut number = 0;
    while !types.is_empty() {
        number += 1;
        let info = u32_at(types, 4)?;
        let (kind, members) = ((info >> 24 & 0x1f) as usize, (info & 0xffff) as usize);
        let (fixed, each) = *KINDS.get(kind)?;
        let size = 12 + fixed + each * members;
        let body = types.get(12..size)?;
        if kind == FUNCTION {
            let own = name(usize_at(types, 0)?)?;
            if let Some(found) = wanted.functions.iter().find(|other| other.as_bytes() == own) {
                layout.functions.insert(found, number);
            }
        } else if kind == STRUCTURE {
            let own = name(usize_at(types, 0)?)?;
            let found = wanted.fields.iter().find(|(other, _)| other.as_bytes() == own);
            if let Some((structure, fields)) = found {
                layout.sizes.insert(structure, u32_at(types, 8)?);
                for member in body.chunks_exact(12) {
                    let own = name(usize_at(member, 0)?)?;
                    let field = fields.iter().find(|other| other.as_bytes() == own);
                    if let Some(field) = field {
                        // With the flag in the info, the upper byte is the size of a bit field.
                        let bits =
                            u32_at(member, 8)? & if info >> 31 == 1 { 0xff_ffff } else { !0 };
                        layout.fields.insert((structure, field), bits / 8);
                    }
                }
            }
        }
        types = &types[size..];
    }
    Some(layout)
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn usize_at(data: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(data, at)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[(&str, &[&str])] = &[("file", &["f_inode", "absent"]), ("none", &["x"])];
    const WANTED: Wanted<'_> = Wanted { functions: &["read_it"], fields: FIELDS };

    /// Writes types of (kind with flag and members, size or type, body, name).
    fn encoded(types: &[(u32, u32, &[u32], u32)], names: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        for (info, size, body, name) in types {
            all.extend([*name, *info, *size].iter().flat_map(|word| word.to_ne_bytes()));
            all.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
        }
        let mut data = MAGIC.to_ne_bytes().to_vec();
        data.extend([1, 0]);
        let (types, strings) = (all.len() as u32, names.len() as u32);
        data.extend(
            [24, 0, types, types, strings].iter().flat_map(|word: &u32| word.to_ne_bytes()),
        );
        data.extend(all);
        data.extend(names);
        data
    }

    /// Returns an integer, a structure `file` with `f_inode` at byte 32, and a function `read_it`.
    fn sample(flag: u32, bits: u32) -> Vec<u8> {
        let names = b"\0int\0file\0f_inode\0read_it\0";
        encoded(
            &[
                (1 << 24, 4, &[32], 1),
                (flag << 31 | 4 << 24 | 2, 64, &[1, 1, 0, 10, 1, bits], 5),
                (12 << 24, 0, &[], 18),
            ],
            names,
        )
    }

    #[test]
    fn functions_are_numbered_and_fields_have_offsets() {
        for (flag, bits) in [(0, 256), (1, 8 << 24 | 256)] {
            let data = sample(flag, bits);
            let layout = look_up(&data, WANTED).unwrap();
            assert_eq!(layout.functions, HashMap::from([("read_it", 3)]));
            assert_eq!(layout.fields, HashMap::from([(("file", "f_inode"), 32)]));
            assert_eq!(layout.sizes, HashMap::from([("file", 64)]));
        }
    }

    #[test]
    fn malformed_types_are_rejected() {
        let whole = sample(0, 256);
        for length in 0..whole.len() - 30 {
            assert_eq!(look_up(&whole[..length], WANTED), None, "{length} bytes");
        }
        let unknown_kind = encoded(&[(25 << 24, 0, &[], 0)], b"\0");
        assert_eq!(look_up(&unknown_kind, WANTED), None);
        let name_past_end = encoded(&[(12 << 24, 0, &[], 99)], b"\0");
        assert_eq!(look_up(&name_past_end, WANTED), None);
        let body_past_end = encoded(&[(4 << 24 | 0xffff, 0, &[], 0)], b"\0");
        assert_eq!(look_up(&body_past_end, WANTED), None);
    }
}
