//! Prediction of the rate for controllers that look ahead: the scenario's key `predicted`, and the rates
//! to which it is resolved before the run.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use skyhop_units::{Instant, Rate};
use skyhop_video::RateTraceError;
use skyhop_video::forecast::{Errors, PredictionHistory, Predictions, TransferPath};
use skyhop_video::session::Session;

/// Source of the predicted rate: the scenario's key `predicted`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Predicted {
    /// Rate of each second of the session, given in the scenario.
    Rates(Vec<Rate>),
    /// Throughput model saved by `skyhop predict train`: the model's directory, or the card in it.
    Model(String),
    /// True rate with a random error.
    Oracle {
        /// Mean and spread of the error.
        oracle: Oracle,
    },
}

/// Parameters of an oracle: the true rate of each second with a random error.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Oracle {
    /// Mean error of the rate of a second, relative to the true rate; 0.1 is a tenth too high.
    pub mean_error: f64,
    /// Standard deviation of the errors, relative to the true rate.
    pub relative_sd: f64,
    /// Seed of the random errors. Default: derived from the run's seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// Rate over time that a session will get or is predicted to get; provided by the caller that builds the run.
#[derive(Debug, Clone, PartialEq)]
pub enum RateOracle {
    /// True rate of the links that the film crosses, by the time since the run's start.
    Truth(TransferPath),
    /// Rates that a model predicts, by the time since the run's start.
    Predicted(PredictionHistory),
}

impl Oracle {
    /// Return the distribution of the errors.
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
    /// Whether there is no prediction at all.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Rates(rates) if rates.is_empty())
    }

    /// Set the prediction of a session that begins at `began`. Random errors follow from the oracle's own
    /// seed if it has one, else from `seed`.
    ///
    /// # Errors
    /// All rates of the trace are 0.
    pub(super) fn configure(
        &self,
        session: &mut Session,
        oracle_data: Option<&RateOracle>,
        began: Instant,
        seed: u64,
    ) -> Result<(), RateTraceError> {
        let began_s = began.saturating_since(Instant::START).as_secs_f64();
        match (self, oracle_data) {
            (Self::Rates(rates), _) => {
                let rates = rates.iter().map(|rate| rate.bits_per_second() as f64).collect();
                if let Ok(ahead) = Predictions::new(0.0, 1.0, rates) {
                    session.set_forecast(Arc::new(ahead));
                }
            }
            (Self::Oracle { oracle }, Some(RateOracle::Truth(truth))) => {
                let seed = oracle.seed.unwrap_or(seed);
                let told = truth.with_errors(oracle.errors(), seed)?;
                session.set_forecast(Arc::new(TransferPath { offset_s: began_s, ..told }));
            }
            (Self::Model(_), Some(RateOracle::Predicted(made))) => {
                session.set_prediction_history(made.for_session_at(began_s));
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

/// Table form of the key: `{ oracle = { … } }`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OracleTable {
    /// True rate with a random error.
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
