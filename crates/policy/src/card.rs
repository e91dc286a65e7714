//! What a card says.

use serde::Deserialize;

use crate::error::PolicyError;
use crate::feature::{Term, check_name};

/// A card: a policy in words and numbers, without its network's weights.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// What it is called.
    pub title: String,
    /// What it does.
    #[serde(default)]
    pub about: String,
    /// Where its rules were published.
    #[serde(default)]
    pub source: String,
    /// The licence of its weights.
    #[serde(default)]
    pub licence: String,
    /// What it was trained with.
    #[serde(default)]
    pub training: String,
    /// How well it does.
    #[serde(default)]
    pub results: String,
    /// What `cc/policy.c` is set to: its parameters, as a scenario has them.
    #[serde(default)]
    pub tcp: std::collections::BTreeMap<String, toml::Value>,
    /// What it sees.
    pub observation: ObservationCard,
    /// What decides.
    pub network: NetworkCard,
    /// What its output means.
    pub action: ActionCard,
}

/// `[observation]`: features of a report, and of how many.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservationCard {
    /// How many reports the network sees, the oldest first, each with all its features.
    #[serde(default = "one")]
    pub steps: usize,
    /// What stands for reports before the first.
    #[serde(default)]
    pub filler: f32,
    /// Quantities of its own, which those after them and features may have in their terms.
    #[serde(default)]
    pub quantities: Vec<Feature>,
    /// The features of a report.
    pub features: Vec<Feature>,
}

impl ObservationCard {
    fn check_features(&self) -> Result<(), String> {
        if self.quantities.len() > MOST_QUANTITIES {
            return Err(format!("observation.quantities: expected {MOST_QUANTITIES} at most"));
        }
        let mut own = Vec::with_capacity(self.quantities.len());
        for (index, quantity) in self.quantities.iter().enumerate() {
            let key = format!("observation.quantities.{index}");
            let is_word =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            if quantity.name.is_empty() || !quantity.name.bytes().all(is_word) {
                return Err(format!("{key}.name: expected a word of a-z, 0-9 and _"));
            }
            if check_name(&quantity.name, &own).is_ok() {
                return Err(format!("{key}.name: `{}` is there already", quantity.name));
            }
            quantity.check(&own).map_err(|error| format!("{key}{error}"))?;
            own.push(&*quantity.name);
        }
        for (index, feature) in self.features.iter().enumerate() {
            let named = |error| format!("observation.features.{index}{error}");
            feature.check(&own).map_err(named)?;
        }
        Ok(())
    }
}

fn one() -> usize {
    1
}

fn unit() -> f64 {
    1.0
}

/// Terms that are multiplied with each other.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "Terms")]
#[derive(Default)]
pub struct Of(pub Vec<Term>);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a term such as \"srtt_s\" or \"max(rate_bps, 10)\", or a list of them"
)]
enum Terms {
    One(Term),
    Many(Vec<Term>),
}

impl From<Terms> for Of {
    fn from(terms: Terms) -> Self {
        match terms {
            Terms::One(term) => Self(vec![term]),
            Terms::Many(terms) => Self(terms),
        }
    }
}

/// `times` × `of` / `over` + `plus`, within bounds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// What figures call it; what it is made of where not given. Of a quantity what terms call it.
    #[serde(default)]
    pub name: String,
    /// Numerator.
    pub of: Of,
    /// Denominator; nothing: 1.
    #[serde(default)]
    pub over: Of,
    /// Factor.
    #[serde(default = "unit")]
    pub times: f64,
    /// What is added.
    #[serde(default)]
    pub plus: f64,
    /// Lower bound.
    pub least: Option<f64>,
    /// Upper bound.
    pub most: Option<f64>,
    /// The value where the numerator is 0, which is looked at first.
    pub if_zero: Option<f64>,
    /// The value where the denominator is 0.
    #[serde(default)]
    pub otherwise: f64,
    /// To how many decimals it is rounded.
    pub decimals: Option<u32>,
}

impl Feature {
    /// `own` are the names of the card's own quantities before it.
    fn check(&self, own: &[&str]) -> Result<(), String> {
        let numbers = [Some(self.times), Some(self.plus), Some(self.otherwise)];
        let others = [self.least, self.most, self.if_zero];
        if numbers.into_iter().chain(others).flatten().any(|number| !number.is_finite()) {
            return Err(": has a number without end".to_owned());
        }
        if self.least.zip(self.most).is_some_and(|(least, most)| least > most) {
            return Err(".least: is above `most`".to_owned());
        }
        if self.decimals.is_some_and(|decimals| decimals > 9) {
            return Err(".decimals: expected 9 at most".to_owned());
        }
        if self.of.0.is_empty() {
            return Err(".of: is empty".to_owned());
        }
        for (key, terms) in [("of", &self.of.0), ("over", &self.over.0)] {
            for term in terms {
                check_name(&term.of, own).map_err(|error| format!(".{key}: {error}"))?;
            }
        }
        Ok(())
    }
}

/// `[network]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkCard {
    /// An ONNX file beside the card, or a file in Python.
    pub file: String,
    /// Where its authors publish it: what is said where the file is missing.
    #[serde(default)]
    pub published: String,
    /// Inputs and outputs that carry its memory from one decision to the next.
    #[serde(default)]
    pub memory: Vec<MemoryCard>,
    /// The bounds of its output: what lies outside is moved to them, and counted.
    #[serde(default = "plus_minus_one")]
    pub output: [f64; 2],
}

fn plus_minus_one() -> [f64; 2] {
    [-1.0, 1.0]
}

/// What a network remembers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCard {
    /// The input's name.
    pub input: String,
    /// The output's name.
    pub output: String,
    /// How many numbers.
    pub size: usize,
}

/// What a decision is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moves {
    /// The window of the report.
    Cwnd,
    /// A window of its own, which is no whole number.
    OwnCwnd,
    /// A pacing rate of its own, with a window of so many round trips of it.
    OwnRate,
    /// The window that there is when the decision is obeyed.
    Factor,
}

/// How an output becomes a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// `base` to the power of the output.
    Power,
    /// 1 + `step` × output, or where that is negative 1 / (1 - `step` × output).
    Step,
}

/// How a window becomes a whole number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Round {
    /// Down.
    #[default]
    Down,
    /// Up.
    Up,
    /// Up where the output is 0 or more, else down.
    Away,
    /// To the nearest.
    Nearest,
}

/// `[action]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionCard {
    /// What it moves.
    pub moves: Moves,
    /// How the output becomes a factor.
    pub shape: Shape,
    /// Of shape = "power".
    #[serde(default = "two")]
    pub base: f64,
    /// Of shape = "step".
    #[serde(default = "step")]
    pub step: f64,
    /// To how many decimals the output is rounded first.
    pub output_decimals: Option<u32>,
    /// To how many decimals the factor is cut.
    pub factor_decimals: Option<u32>,
    /// What an own window begins with; that of the first report where not given.
    pub first_cwnd: Option<f64>,
    /// How a window becomes a whole number.
    #[serde(default)]
    pub round: Round,
    /// The least window, packets.
    #[serde(default = "four")]
    pub least_cwnd: f64,
    /// The largest window, packets.
    #[serde(default = "many")]
    pub most_cwnd: f64,
    /// Of an own rate: what it begins with, Mbit/s, the least, and the most.
    #[serde(default = "rates")]
    pub rate_mbps: [f64; 3],
    /// Of an own rate: the window, in round trips of it.
    #[serde(default = "two")]
    pub window_rtts: f64,
}

fn two() -> f64 {
    2.0
}

fn step() -> f64 {
    0.025
}

fn four() -> f64 {
    4.0
}

fn many() -> f64 {
    1e6
}

fn rates() -> [f64; 3] {
    [2.0, 0.25, 1000.0]
}

/// So many numbers a network may see at most.
const MOST_INPUTS: usize = 100_000;
/// So many quantities of its own a card may have.
const MOST_QUANTITIES: usize = 1000;

impl Card {
    /// Reads a card.
    ///
    /// # Errors
    /// [`PolicyError::Card`]: it is no card.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let card: Self = toml::from_str(text).map_err(|error| {
            let place = error.span().map(|span| text[..span.start].lines().count().max(1));
            let place = place.map_or_else(String::new, |line| format!("line {line}: "));
            PolicyError::card(format!("{place}{}", one_line(error.message())))
        })?;
        card.check()?;
        Ok(card)
    }

    /// How many numbers its network sees, memory apart.
    pub fn inputs(&self) -> usize {
        self.observation.steps * self.observation.features.len()
    }

    fn check(&self) -> Result<(), PolicyError> {
        let wrong = |key: &str, what: &str| Err(PolicyError::card(format!("{key}: {what}")));
        let observation = &self.observation;
        if observation.features.is_empty() {
            return wrong("observation.features", "is empty; expected at least one");
        }
        let size = observation.steps.checked_mul(observation.features.len());
        if observation.steps == 0 || size.is_none_or(|size| size > MOST_INPUTS) {
            return wrong("observation.steps", "with its features, expected 1 to 100000 numbers");
        }
        observation.check_features().map_err(PolicyError::card)?;
        if self.network.memory.iter().any(|memory| memory.size == 0 || memory.size > MOST_INPUTS) {
            return wrong("network.memory", "expected a size of 1 to 100000");
        }
        let [least, most] = self.network.output;
        if !(least.is_finite() && most.is_finite() && least < most) {
            return wrong("network.output", "expected two numbers, the smaller first");
        }
        let action = &self.action;
        let is_window = |cwnd: f64| (1.0..=1e9).contains(&cwnd);
        if !is_window(action.least_cwnd)
            || !is_window(action.most_cwnd)
            || action.least_cwnd > action.most_cwnd
        {
            return wrong("action.least_cwnd", "expected 1 or more, and no more than most_cwnd");
        }
        if action.first_cwnd.is_some_and(|cwnd| !is_window(cwnd)) {
            return wrong("action.first_cwnd", "expected 1 or more");
        }
        if !(action.base > 0.0 && action.base.is_finite()) {
            return wrong("action.base", "expected a number above 0");
        }
        if !(action.step > 0.0 && action.step < 1.0) {
            return wrong("action.step", "expected a number between 0 and 1");
        }
        if action.output_decimals.max(action.factor_decimals).is_some_and(|decimals| decimals > 9) {
            return wrong("action.output_decimals", "expected 9 at most");
        }
        let [first, least, most] = action.rate_mbps;
        if !(least > 0.0 && least <= first && first <= most && most <= 1e6) {
            return wrong(
                "action.rate_mbps",
                "expected what it begins with, the least and the most",
            );
        }
        Ok(())
    }
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
