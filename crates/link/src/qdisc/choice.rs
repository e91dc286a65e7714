//! Text form of a queue discipline in files: `"codel"`, or `{ kind = "codel", target = "5 ms" }`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::{FifoConfig, QDISCS, QueueDiscipline, Table};
use crate::LinkError;

impl Default for QueueDiscipline {
    fn default() -> Self {
        Self::Fifo(FifoConfig::default())
    }
}

impl QueueDiscipline {
    /// Return the discipline called `name`, with Linux's default parameters.
    ///
    /// # Errors
    /// No discipline has that name.
    pub fn named(name: &str) -> Result<Self, LinkError> {
        let entry = QDISCS.iter().find(|entry| entry.name == name);
        entry.map(|entry| (entry.default)()).ok_or_else(|| LinkError::UnknownQdisc {
            name: name.to_owned(),
            known: QDISCS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Serialize the discipline as a table with `kind` and all parameters.
    ///
    /// # Errors
    /// The serializer fails.
    pub fn serialize_whole<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Table::from(self.clone()).serialize(to)
    }
}

/// Serialized as its name alone if all parameters have their default values.
impl Serialize for QueueDiscipline {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let is_plain = Self::named(self.name()).is_ok_and(|plain| plain == *self);
        if is_plain { to.serialize_str(self.name()) } else { self.serialize_whole(to) }
    }
}

impl<'de> Deserialize<'de> for QueueDiscipline {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NameOrTable)
    }
}

struct NameOrTable;

impl<'de> Visitor<'de> for NameOrTable {
    type Value = QueueDiscipline;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a qdisc's name, or a table with its name as \"kind\" and its parameters")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        QueueDiscipline::named(name).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let qdisc: QueueDiscipline = Table::deserialize(MapAccessDeserializer::new(map))?.into();
        qdisc.check().map_err(A::Error::custom)?;
        Ok(qdisc)
    }
}

impl JsonSchema for QueueDiscipline {
    fn schema_name() -> Cow<'static, str> {
        "QueueDiscipline".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = QDISCS.iter().map(|entry| entry.name).collect();
        let table = generator.subschema_for::<Table>();
        json_schema!({ "anyOf": [{ "type": "string", "enum": names }, table] })
    }
}
