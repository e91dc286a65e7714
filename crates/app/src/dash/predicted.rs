//! What a controller that looks ahead is told of the rate: what a scenario says, and what became of it before the run.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use skyhop_units::{Instant, Rate};
use skyhop_video::RateTraceError;
use skyhop_video::ahead::{Errors, Made, OverPath, Predictions};
use skyhop_video::session::Session;

/// Who foretells the rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Predicted {
    /// Somebody who gives the rates of the session's seconds at its beginning.
    Rates(Vec<Rate>),
    /// A model of throughput that `skyhop predict train` saved: its directory, or the card in it.
    Model(String),
    /// The truth with a stated error.
    Oracle {
        /// How wrong it is.
        oracle: Oracle,
    },
}

/// An oracle that errs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Oracle {
    /// The mean error of a second's rate, relative to the truth: 0.1 is a tenth too high.
    pub mean_error: f64,
    /// The errors' standard deviation, relative to the truth.
    pub relative_sd: f64,
    /// Of what is drawn; by the run's seed where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// What is known before a run of the rate that a session will meet: whoever builds the run puts it here.
#[derive(Debug, Clone, PartialEq)]
pub enum Foretold {
    /// The rate of the links that the film comes over, by the run's time.
    Truth(OverPath),
    /// What a model makes of it, likewise.
    Made(Made),
}

impl Oracle {
    /// How wrong it is.
    pub const fn errors(&self) -> Errors {
        Errors { mean_error: self.mean_error, relative_sd: self.relative_sd }
    }
}

impl Default for Predicted {
    fn default() -> Self {
        Self::Rates(Vec::new())
    }
}

impl Predicted {
    /// Whether there is anybody.
    pub fn is_nobody(&self) -> bool {
        matches!(self, Self::Rates(rates) if rates.is_empty())
    }

    /// Tells a session that begins at `began`.
    ///
    /// # Errors
    /// There is no rate in what was foretold.
    pub(super) fn tell(
        &self,
        session: &mut Session,
        foretold: Option<&Foretold>,
        began: Instant,
        seed: u64,
    ) -> Result<(), RateTraceError> {
        let began_s = began.saturating_since(Instant::START).as_secs_f64();
        match (self, foretold) {
            (Self::Rates(rates), _) => {
                let rates = rates.iter().map(|rate| rate.bits_per_second() as f64).collect();
                if let Ok(ahead) = Predictions::new(0.0, 1.0, rates) {
                    session.look_ahead(Arc::new(ahead));
                }
            }
            (Self::Oracle { oracle }, Some(Foretold::Truth(truth))) => {
                let seed = oracle.seed.unwrap_or(seed);
                let told = truth.erring(oracle.errors(), seed)?;
                session.look_ahead(Arc::new(OverPath { offset_s: began_s, ..told }));
            }
            (Self::Model(_), Some(Foretold::Made(made))) => {
                session.look_ahead_by(made.for_session_at(began_s));
            }
            _ => {}
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Predicted {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ListNameOrTable)
    }
}

struct ListNameOrTable;

impl<'de> Visitor<'de> for ListNameOrTable {
    type Value = Predicted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rates, a model's directory, or { oracle = { … } }")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Predicted, E> {
        Ok(Predicted::Model(name.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Predicted, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Predicted::Rates)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Predicted, A::Error> {
        let table = OracleTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Predicted::Oracle { oracle: table.oracle })
    }
}

/// The table in a file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OracleTable {
    /// The truth with a stated error.
    oracle: Oracle,
}

impl JsonSchema for Predicted {
    fn schema_name() -> Cow<'static, str> {
        "Predicted".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let rates = generator.subschema_for::<Vec<Rate>>();
        let table = generator.subschema_for::<OracleTable>();
        json_schema!({ "anyOf": [rates, { "type": "string" }, table] })
    }
}
