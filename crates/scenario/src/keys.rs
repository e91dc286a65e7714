//! Tables of a file whose keys depend on a kind, or belong to several structs.
//!
//! serde's `tag` and `flatten` serve the same purpose, but their errors do not name the key, and unknown keys
//! pass. Here every struct takes its own keys out of the table, and a key that is left over is an error.

use std::mem::take;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer};
use serde::de::{VariantAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, forward_to_deserialize_any};
use serde_path_to_error::Track;
use skyhop_model::with_hint;
use thiserror::Error;
use toml::{Table, Value};

/// Separator of key and message in the text of an error while it passes through serde, whose errors
/// carry only text.
const SEPARATOR: char = '\u{1f}';

/// Error in the value of a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key}: {what}")]
pub struct KeyError {
    /// Path of the key, such as "flow.0.cc", below the table that was read; empty if the error concerns the
    /// whole table.
    pub key: String,
    /// Problem, and what was expected.
    pub what: String,
}

impl KeyError {
    /// Return the error with `section` prefixed to its key, for the table that contains `section`.
    fn under(self, section: &str) -> Self {
        let steps = [section, &self.key].into_iter().filter(|step| !step.is_empty());
        Self { key: steps.collect::<Vec<_>>().join("."), what: self.what }
    }

    fn through_serde<E: de::Error>(self) -> E {
        E::custom(format!("{}{SEPARATOR}{}", self.key, self.what))
    }
}

impl de::Error for KeyError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        let message = with_hint(&message.to_string());
        let (key, what) = message.split_once(SEPARATOR).unwrap_or(("", &message));
        Self { key: key.to_owned(), what: what.to_owned() }
    }
}

/// Deserialize a value and all tables in it.
///
/// # Errors
/// The first invalid value, with its key.
pub fn read<T: DeserializeOwned>(value: Value) -> Result<T, KeyError> {
    tracked(value, |value| T::deserialize(value))
}

type Tracked<'t> = serde_path_to_error::Deserializer<'t, 't, Value>;

fn tracked<T>(
    value: Value,
    read: impl FnOnce(Tracked<'_>) -> Result<T, toml::de::Error>,
) -> Result<T, KeyError> {
    let mut track = Track::new();
    let read = read(serde_path_to_error::Deserializer::new(value, &mut track));
    read.map_err(|error| {
        let inner: KeyError = de::Error::custom(error.message());
        // "flow[0].cc" is written flow.0.cc in all other messages.
        let place = track.path().to_string().replace('[', ".").replace(']', "");
        // The place of the value itself is ".", and a list begins with an index.
        inner.under(place.trim_start_matches('.'))
    })
}

/// Read a table of several parts, for implementations of `Deserialize`; `parts` takes the keys of each part.
///
/// # Errors
/// The errors of `parts`, and keys that `parts` has not taken.
pub fn read_parts<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parts: impl FnOnce(&mut Keys) -> Result<T, KeyError>,
) -> Result<T, D::Error> {
    read_table(deserializer, "", parts)
}

/// Read a table as [`read_parts`] does. The error about a text in its place shows the table in which this text is the
/// value of the key `tag`; without `tag`, it does not.
pub(crate) fn read_table<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    tag: &str,
    parts: impl FnOnce(&mut Keys) -> Result<T, KeyError>,
) -> Result<T, D::Error> {
    let table = match Value::deserialize(deserializer)? {
        Value::Table(table) => table,
        other => {
            let is_kind = other.is_str() && !tag.is_empty();
            let such_as =
                if is_kind { format!("; write {{ {tag} = {other} }}") } else { String::new() };
            let what = format!("{other} is not a table{such_as}");
            return Err(KeyError { key: String::new(), what }.through_serde());
        }
    };
    let mut keys = Keys { table, ..Keys::default() };
    let value = parts(&mut keys).and_then(|value| keys.finish().map(|()| value));
    value.map_err(KeyError::through_serde)
}

/// Enum with a variant for each kind of a table: without content, or with a struct of the keys that only this
/// kind has.
pub trait Kinds: Serialize + DeserializeOwned {
    /// Noun for the table in error messages: "a path".
    const NOUN: &'static str;
    /// Key that holds the kind.
    const TAG: &'static str = "kind";
    /// Kind of a table without the key `TAG`, if that key may be omitted.
    const DEFAULT: Option<&'static str> = None;
}

/// Keys of a table that no struct has taken yet.
#[derive(Debug, Default)]
pub struct Keys {
    table: Table,
    known: Vec<&'static str>,
    kinds: &'static [&'static str],
}

impl Keys {
    /// Take the value of one key, if it is given.
    ///
    /// # Errors
    /// The value has the wrong type or is not valid.
    pub fn key<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>, KeyError> {
        self.known.push(key);
        let value = self.table.remove(key).map(read);
        value.transpose().map_err(|error| error.under(key))
    }

    /// Take the keys that belong to a struct and leave the others. The struct must have a derived
    /// `Deserialize`, which names its fields.
    ///
    /// # Errors
    /// A key is missing or its value is not valid.
    pub fn part<T: DeserializeOwned>(&mut self) -> Result<T, KeyError> {
        T::deserialize(Part { keys: self, tag: "", kind: "" })
    }

    /// Read the table's kind as a variant of the enum, and take the keys of that variant. The
    /// caller must take keys shared by all kinds before.
    ///
    /// # Errors
    /// The errors of [`Keys::part`]; an unknown kind; a key of another kind.
    pub fn kind<T: Kinds>(&mut self) -> Result<T, KeyError> {
        let shared = take(&mut self.known);
        let given = self.key::<String>(T::TAG)?;
        let is_given = given.is_some();
        let kind = given.or(T::DEFAULT.map(str::to_owned));
        let kind = kind.ok_or_else(|| de::Error::missing_field(T::TAG))?;
        let value = T::deserialize(Part { keys: self, tag: T::TAG, kind: &kind })?;
        self.known.extend(shared);
        for key in self.table.keys() {
            let owners = self.kinds.iter().filter(|kind| has_key::<T>(kind, key));
            let owners: Vec<String> = owners.map(|kind| format!("\"{kind}\"")).collect();
            if !owners.is_empty() {
                let what = self.foreign::<T>(&kind, is_given, &owners.join(" or "));
                return Err(KeyError { key: key.clone(), what });
            }
        }
        Ok(value)
    }

    /// Message about a key of other kinds, `owners`, in a table of `kind`.
    fn foreign<T: Kinds>(&self, kind: &str, is_given: bool, owners: &str) -> String {
        let (noun, tag) = (T::NOUN, T::TAG);
        if !is_given {
            return format!(
                "belongs to {noun} of {tag} {owners}, but {tag} is missing; add {tag} = {owners} (its default is \
                 \"{kind}\")"
            );
        }
        let keys = match &self.known[1..] {
            [] => "it has no keys".to_owned(),
            known => format!("its keys are {}", known.join(", ")),
        };
        format!("does not belong to {noun} of {tag} \"{kind}\" but of {owners}; {keys}")
    }

    /// Take all tables that have not been taken.
    pub fn other_tables(&mut self) -> Table {
        let (tables, rest) = take(&mut self.table).into_iter().partition(|(_, v)| v.is_table());
        self.table = rest;
        tables
    }

    fn finish(&self) -> Result<(), KeyError> {
        let Some(key) = self.table.keys().next() else { return Ok(()) };
        let known: Vec<String> = self.known.iter().map(|key| format!("`{key}`")).collect();
        let what = format!("unknown field `{key}`, expected one of {}", known.join(", "));
        Err(KeyError { key: key.clone(), what })
    }
}

/// Whether a kind has a key. An attempt to read the kind from an empty table reveals the kind's keys.
fn has_key<T: Kinds>(kind: &str, key: &str) -> bool {
    let mut keys = Keys::default();
    let _ = T::deserialize(Part { keys: &mut keys, tag: T::TAG, kind });
    keys.known.contains(&key)
}

/// Deserializer of a part of a table: gives a struct its own keys, and an enum its variant with that struct's
/// keys.
struct Part<'k> {
    keys: &'k mut Keys,
    tag: &'static str,
    kind: &'k str,
}

impl<'de> Deserializer<'de> for Part<'_> {
    type Error = KeyError;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        let Keys { table, known, .. } = self.keys;
        known.extend(fields);
        let own = fields.iter().filter_map(|key| table.remove_entry(*key)).collect();
        tracked(Value::Table(own), |own| own.deserialize_struct(name, fields, visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        kinds: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.keys.kinds = kinds;
        visitor.visit_enum(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, KeyError> {
        Err(de::Error::custom("is read in parts, but one of them has no keys of its own"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl<'de> EnumAccess<'de> for Part<'_> {
    type Error = KeyError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), KeyError> {
        let kind: StrDeserializer<'_, KeyError> = self.kind.into_deserializer();
        let kind = seed.deserialize(kind).map_err(|error| error.under(self.tag))?;
        Ok((kind, self))
    }
}

impl<'de> VariantAccess<'de> for Part<'_> {
    type Error = KeyError;

    fn unit_variant(self) -> Result<(), KeyError> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, KeyError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, KeyError> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.deserialize_struct("", fields, visitor)
    }
}
