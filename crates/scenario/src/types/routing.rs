//! `network.routing`: a name, or a table with the keys of a routing.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skyhop_units::Duration;
use toml::{Table, Value};

use crate::by_kind;
use crate::keys::Kinds;

/// Choice of routes in a network: a name, or a table with the name as `kind`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(tag = "kind", transform = or_its_name)]
pub enum Routing {
    /// Route of the least delay, computed every `interval`.
    #[default]
    Shortest,
    /// Route of the least delay at a moment, which holds for some time though satellites move. A packet whose next hop
    /// no longer exists is lost.
    Snapshot(SnapshotKeys),
    /// Routes of a file, which never change. A packet without a row, or whose next hop does not exist, is lost.
    Table(RoutingTableKeys),
    /// Routes among which flows are spread: each node chooses among the neighbours that are nearer to the destination, and
    /// over which the least delay is longer by at most `slack`.
    EqualCost(EqualCostKeys),
}

impl Kinds for Routing {
    const NOUN: &'static str = "a routing";
}

/// Keys of `network.routing` with kind = "snapshot".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotKeys {
    /// Time for which the routes of a moment hold, at least `network.interval`. Required.
    pub every: Duration,
}

/// Keys of `network.routing` with kind = "equal-cost".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EqualCostKeys {
    /// Largest difference to the least delay, for the choice of each node. Required.
    pub slack: Duration,
    /// Number of ways to each destination, 1 to 64; a hash of a flow's number chooses its way.
    #[serde(default = "eight")]
    pub ways: u32,
}

const fn eight() -> u32 {
    8
}

/// Keys of `network.routing` with kind = "table".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoutingTableKeys {
    /// CSV file with the columns at, destination and next: a satellite or site, the site to which packets go, and the
    /// satellite that they take next, or the destination; looked up relative to the scenario file first. Required.
    pub file: String,
}

/// Extend the schema of the tables by the name of the routing without keys.
fn or_its_name(schema: &mut schemars::Schema) {
    let table = std::mem::take(schema);
    *schema =
        schemars::json_schema!({ "anyOf": [{ "type": "string", "enum": ["shortest"] }, table] });
}

/// Write a routing without keys as its name, and others as a table.
pub(crate) fn serialize<S: Serializer>(routing: &Routing, to: S) -> Result<S::Ok, S::Error> {
    match routing {
        Routing::Shortest => routing.serialize(to),
        other => by_kind::serialize(other, to),
    }
}

/// Read a routing from its name or a table.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Routing, D::Error> {
    struct Forms;

    impl<'de> Visitor<'de> for Forms {
        type Value = Routing;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(
                "\"shortest\", or a table such as { kind = \"snapshot\", every = \"15 s\" }",
            )
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<Routing, E> {
            let kind = (Routing::TAG.to_owned(), Value::String(name.to_owned()));
            let table = Value::Table(Table::from_iter([kind]));
            by_kind::deserialize(table).map_err(|error: toml::de::Error| E::custom(error.message()))
        }

        fn visit_map<A: MapAccess<'de>>(self, keys: A) -> Result<Routing, A::Error> {
            by_kind::deserialize(MapAccessDeserializer::new(keys))
        }
    }

    from.deserialize_any(Forms)
}
