//! Choice of a controller in files, such as `"bola"` or `{ kind = "bola", gp = 5.0 }`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::{CONTROLLERS, Controller, ControllerChoice, ControllerError, RobustMpcConfig, Table};
use crate::Film;
use crate::qoe::Qoe;

impl Default for ControllerChoice {
    fn default() -> Self {
        Self::RobustMpc(RobustMpcConfig::default())
    }
}

impl ControllerChoice {
    /// Return the controller called `name`, with the published parameters.
    ///
    /// # Errors
    /// No controller has that name.
    pub fn named(name: &str) -> Result<Self, ControllerError> {
        let entry = CONTROLLERS.iter().find(|entry| entry.name == name);
        entry.map(|entry| (entry.default)()).ok_or_else(|| {
            let known: Vec<&str> = CONTROLLERS.iter().map(|entry| entry.name).collect();
            ControllerError::Unknown { name: name.to_owned(), expected: known.join(", ") }
        })
    }

    /// Create the controller for this film and QoE; its random draws follow from the seed.
    pub fn build(&self, film: &Film, qoe: &Qoe, seed: u64) -> Box<dyn Controller> {
        self.parameters().controller(film, qoe, seed)
    }

    /// Whether the controller needs a forecast of the rate.
    pub fn looks_ahead(&self) -> bool {
        self.parameters().looks_ahead()
    }

    /// Check the parameters' ranges.
    ///
    /// # Errors
    /// A parameter is out of range.
    pub fn check(&self) -> Result<(), ControllerError> {
        self.parameters().fault().map_or(Ok(()), |(key, value, expected)| {
            Err(ControllerError::Parameter { controller: self.name(), key, value, expected })
        })
    }

    /// Serialize as the table with all parameters.
    ///
    /// # Errors
    /// The serializer fails.
    pub fn serialize_whole<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Table::from(self.clone()).serialize(to)
    }
}

/// Serialized as the name alone if all parameters have the published values.
impl Serialize for ControllerChoice {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let is_plain = Self::named(self.name()).is_ok_and(|plain| plain == *self);
        if is_plain { to.serialize_str(self.name()) } else { self.serialize_whole(to) }
    }
}

impl<'de> Deserialize<'de> for ControllerChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NameOrTable)
    }
}

struct NameOrTable;

impl<'de> Visitor<'de> for NameOrTable {
    type Value = ControllerChoice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a controller's name, or a table with its name as \"kind\" and its parameters")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        ControllerChoice::named(name).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let choice: ControllerChoice = Table::deserialize(MapAccessDeserializer::new(map))?.into();
        choice.check().map_err(A::Error::custom)?;
        Ok(choice)
    }
}

impl JsonSchema for ControllerChoice {
    fn schema_name() -> Cow<'static, str> {
        "Controller".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = CONTROLLERS.iter().map(|entry| entry.name).collect();
        let table = generator.subschema_for::<Table>();
        json_schema!({ "anyOf": [{ "type": "string", "enum": names }, table] })
    }
}
