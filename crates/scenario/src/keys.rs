//! Tables of a file whose keys depend on a kind, or belong to several structs.
//!
//! serde has `tag` and `flatten` for these, but then an error no longer says which key it is about,
//! and keys that nobody knows pass. Here every struct takes its own keys out of the table, and what is
//! left over is an error.

use std::mem::take;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer};
use serde::de::{VariantAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, forward_to_deserialize_any};
use serde_path_to_error::Track;
use skyhop_model::plain_error;
use thiserror::Error;
use toml::{Table, Value};

/// Stands between key and message while an error passes through serde, which carries text alone.
const BELOW: char = '\u{1f}';

/// What is wrong with a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{key}: {what}")]
pub struct KeyError {
    /// The key below what was read, such as "flow.0.cc"; empty where it is about all of that.
    pub key: String,
    /// What is wrong, and what was expected.
    pub what: String,
}

impl KeyError {
    /// The same, seen from where `section` is a key.
    fn under(self, section: &str) -> Self {
        let steps = [section, &self.key].into_iter().filter(|step| !step.is_empty());
        Self { key: steps.collect::<Vec<_>>().join("."), what: self.what }
    }

    fn through_serde<E: de::Error>(self) -> E {
        E::custom(format!("{}{BELOW}{}", self.key, self.what))
    }
}

impl de::Error for KeyError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        let (key, what) = message.split_once(BELOW).unwrap_or(("", &message));
        Self { key: key.to_owned(), what: plain_error(what) }
    }
}

/// Reads anything, keys of all tables below it included.
///
/// # Errors
/// The first thing that is wrong, and the key that it is about.
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
        // "flow[0].cc" is written flow.0.cc everywhere else.
        let place = track.path().to_string().replace('[', ".").replace(']', "");
        inner.under(if place == "." { "" } else { &place })
    })
}

/// Reads a table in parts: what an implementation of `Deserialize` calls.
///
/// # Errors
/// What `parts` finds, and keys that it has not taken.
pub fn read_parts<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parts: impl FnOnce(&mut Keys) -> Result<T, KeyError>,
) -> Result<T, D::Error> {
    let mut keys = Keys { table: Table::deserialize(deserializer)?, ..Keys::default() };
    let value = parts(&mut keys).and_then(|value| keys.finish().map(|()| value));
    value.map_err(KeyError::through_serde)
}

/// An enum with a variant for each kind of a table: one without content, or with a struct of the keys
/// that the kind has of its own.
pub trait Kinds: Serialize + DeserializeOwned {
    /// What the table describes, for errors: "a path".
    const NOUN: &'static str;
    /// The key that says of which kind it is.
    const TAG: &'static str = "kind";
    /// The kind of tables that do not say it, where they may.
    const DEFAULT: Option<&'static str> = None;
}

/// The keys of a table, to be taken out by those who know them.
#[derive(Debug, Default)]
pub struct Keys {
    table: Table,
    known: Vec<&'static str>,
    kinds: &'static [&'static str],
}

impl Keys {
    /// The value of one key, where it is given.
    ///
    /// # Errors
    /// The value is not what it should be.
    pub fn key<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>, KeyError> {
        self.known.push(key);
        let value = self.table.remove(key).map(read);
        value.transpose().map_err(|error| error.under(key))
    }

    /// The struct whose keys stand here among others; it must have a derived `Deserialize`, whose
    /// fields say which keys they are.
    ///
    /// # Errors
    /// One of its keys is missing or is not what it should be.
    pub fn part<T: DeserializeOwned>(&mut self) -> Result<T, KeyError> {
        T::deserialize(Part { keys: self, tag: "", kind: "" })
    }

    /// The enum of which the table is one kind. What it shares with other kinds is to be taken first.
    ///
    /// # Errors
    /// As [`Keys::part`]; there is no such kind; a key belongs to another kind.
    pub fn kind<T: Kinds>(&mut self) -> Result<T, KeyError> {
        let shared = take(&mut self.known);
        let kind = self.key::<String>(T::TAG)?.or(T::DEFAULT.map(str::to_owned));
        let kind = kind.ok_or_else(|| de::Error::missing_field(T::TAG))?;
        let value = T::deserialize(Part { keys: self, tag: T::TAG, kind: &kind })?;
        self.known.extend(shared);
        let foreign = |key: &&String| self.kinds.iter().any(|kind| has_key::<T>(kind, key));
        if let Some(key) = self.table.keys().find(foreign) {
            let keys = match &self.known[1..] {
                [] => "it has no keys".to_owned(),
                known => format!("its keys are {}", known.join(", ")),
            };
            let what = format!("does not belong to {} of {} \"{kind}\"; {keys}", T::NOUN, T::TAG);
            return Err(KeyError { key: key.clone(), what });
        }
        Ok(value)
    }

    /// All tables that have not been taken.
    pub fn other_tables(&mut self) -> Table {
        let (tables, rest) = take(&mut self.table).into_iter().partition(|(_, v)| v.is_table());
        self.table = rest;
        tables
    }

    fn finish(&self) -> Result<(), KeyError> {
        let Some(key) = self.table.keys().next() else { return Ok(()) };
        let known: Vec<String> = self.known.iter().map(|key| format!("`{key}`")).collect();
        let what = format!("unknown key `{key}`; expected one of {}", known.join(", "));
        Err(KeyError { key: key.clone(), what })
    }
}

/// Whether a kind has a key: who tries to read it learns its keys.
fn has_key<T: Kinds>(kind: &str, key: &str) -> bool {
    let mut keys = Keys::default();
    let _ = T::deserialize(Part { keys: &mut keys, tag: T::TAG, kind });
    keys.known.contains(&key)
}

/// Gives a struct its own keys out of the table; an enum the variant of which the table is, and the
/// struct in it its keys.
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
