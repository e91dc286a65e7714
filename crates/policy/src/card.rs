//! Cards of policies, which are files in TOML.

use serde::Deserialize;
use skyhop_model::{line_at, one_line, with_hint};

use crate::error::PolicyError;
use crate::feature::{Term, check_name};
use crate::quantity::is_announced;

/// Card: description of a policy in words and numbers, without its network's weights.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Title of the policy.
    pub title: String,
    /// Description of the policy's behaviour.
    #[serde(default)]
    pub about: String,
    /// Publication of the policy's rules.
    #[serde(default)]
    pub source: String,
    /// Licence of the network's weights.
    #[serde(default)]
    pub licence: String,
    /// Description of the training: tool, scenarios, reward.
    #[serde(default)]
    pub training: String,
    /// Description of the results: how well the policy does.
    #[serde(default)]
    pub results: String,
    /// Parameters of `cc/policy.c`, as in a scenario.
    #[serde(default)]
    pub tcp: std::collections::BTreeMap<String, toml::Value>,
    /// Features that the network observes.
    pub observation: ObservationCard,
    /// Network that decides, and its memory and bounds.
    pub network: NetworkCard,
    /// Meaning of the network's output.
    pub action: ActionCard,
}

/// Table `[observation]`: features of a report, and the number of reports.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservationCard {
    /// Number of reports that the network sees, the oldest first, each with all its features.
    #[serde(default = "one")]
    pub steps: usize,
    /// Value of all features in place of reports before the first.
    #[serde(default)]
    pub filler: f32,
    /// Quantities that the card defines; terms of later quantities and of features may use them.
    #[serde(default)]
    pub quantities: Vec<Feature>,
    /// Features computed from each report.
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
                return Err(format!("{key}.name: `{}` is defined already", quantity.name));
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

/// Product of terms, the numerator or denominator of a feature.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "Terms")]
#[derive(Default)]
pub struct Product(pub Vec<Term>);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a term such as \"srtt_s\" or \"max(rate_bps, 10)\", or a list of them"
)]
enum Terms {
    One(Term),
    Many(Vec<Term>),
}

impl From<Terms> for Product {
    fn from(terms: Terms) -> Self {
        match terms {
            Terms::One(term) => Self(vec![term]),
            Terms::Many(terms) => Self(terms),
        }
    }
}

/// Feature with the value `times` × `of` / `over` + `plus`, within bounds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Name in figures, by default made of the feature's terms. For a quantity, the name in terms.
    #[serde(default)]
    pub name: String,
    /// Numerator, a product of terms.
    pub of: Product,
    /// Denominator, a product of terms; 1 if not given.
    #[serde(default)]
    pub over: Product,
    /// Constant factor of the quotient.
    #[serde(default = "unit")]
    pub times: f64,
    /// Constant that is added to the quotient.
    #[serde(default)]
    pub plus: f64,
    /// Lower bound of the value.
    pub least: Option<f64>,
    /// Upper bound of the value.
    pub most: Option<f64>,
    /// Value if the numerator is 0, which takes precedence over `otherwise`.
    pub if_zero: Option<f64>,
    /// Value if the denominator is 0.
    #[serde(default)]
    pub otherwise: f64,
    /// Number of decimals to which the value is rounded.
    pub decimals: Option<u32>,
}

impl Feature {
    /// Check the feature; `own` are the names of the card's quantities defined before it.
    fn check(&self, own: &[&str]) -> Result<(), String> {
        let numbers = [Some(self.times), Some(self.plus), Some(self.otherwise)];
        let others = [self.least, self.most, self.if_zero];
        if numbers.into_iter().chain(others).flatten().any(|number| !number.is_finite()) {
            return Err(": has an infinite number or NaN".to_owned());
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

/// Table `[network]`: file, memory and output of the network.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkCard {
    /// Path of an ONNX file next to the card, or of a Python file.
    pub file: String,
    /// Address at which the authors publish the network, for the error when the file is missing.
    #[serde(default)]
    pub published: String,
    /// Inputs and outputs that carry memory from one decision to the next.
    #[serde(default)]
    pub memory: Vec<MemoryCard>,
    /// Bounds of the output; outputs outside are clamped, and counted.
    #[serde(default = "plus_minus_one")]
    pub output: [f64; 2],
}

fn plus_minus_one() -> [f64; 2] {
    [-1.0, 1.0]
}

/// Memory of a recurrent network: an output that is an input of the next decision.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryCard {
    /// Name of the network's input.
    pub input: String,
    /// Name of the network's output.
    pub output: String,
    /// Number of values in the memory.
    pub size: usize,
}

/// Quantity that a decision changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moves {
    /// Congestion window, starting from the window in the report.
    Cwnd,
    /// Window that the policy keeps itself, which need not be a whole number.
    OwnCwnd,
    /// Pacing rate that the policy keeps itself; the window holds the data of `window_rtts` round trips at that
    /// rate.
    OwnRate,
    /// Factor that is applied to the window at the time at which the decision takes effect.
    Factor,
}

/// Function from an output to a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Exponential: `base` to the power of the output.
    Power,
    /// Linear: 1 + `step` × output, or for negative outputs 1 / (1 - `step` × output).
    Step,
}

/// Rounding of a window to a whole number of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Round {
    /// Round down, towards zero.
    #[default]
    Down,
    /// Round up, away from zero.
    Up,
    /// Round up if the output is 0 or more, else down.
    Away,
    /// Round to the nearest whole number.
    Nearest,
}

/// Table `[action]`: meaning of the network's output.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionCard {
    /// Quantity that a decision changes.
    pub moves: Moves,
    /// Function from the output to a factor.
    pub shape: Shape,
    /// Base of shape "power".
    #[serde(default = "two")]
    pub base: f64,
    /// Step of shape "step".
    #[serde(default = "step")]
    pub step: f64,
    /// Number of decimals to which the output is rounded first.
    pub output_decimals: Option<u32>,
    /// Number of decimals to which the factor is truncated.
    pub factor_decimals: Option<u32>,
    /// Initial value of the window that the policy keeps itself, in packets; the window of the first report if
    /// not given.
    pub first_cwnd: Option<f64>,
    /// Rounding of a window to a whole number of packets.
    #[serde(default)]
    pub round: Round,
    /// Smallest window in packets.
    #[serde(default = "four")]
    pub least_cwnd: f64,
    /// Largest window in packets.
    #[serde(default = "many")]
    pub most_cwnd: f64,
    /// Initial, smallest and largest rate of a policy that keeps its own rate, Mbit/s.
    #[serde(default = "rates")]
    pub rate_mbps: [f64; 3],
    /// Window of a policy that keeps its own rate, in round trips at that rate.
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

/// Largest number of values that a network may see.
const MOST_INPUTS: usize = 100_000;
/// Largest number of quantities that a card may define.
const MOST_QUANTITIES: usize = 1000;

impl Card {
    /// Parse and check a card in TOML.
    ///
    /// # Errors
    /// [`PolicyError::Card`]: the text is no valid card.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let card: Self = toml::from_str(text).map_err(|error| {
            let line = line_at(text, error.span().map_or(0, |span| span.start));
            PolicyError::card(format!("line {line}: {}", one_line(&with_hint(error.message()))))
        })?;
        card.check()?;
        Ok(card)
    }

    /// Whether the network observes announced handovers.
    pub fn uses_announcements(&self) -> bool {
        let ObservationCard { quantities, features, .. } = &self.observation;
        let products = quantities.iter().chain(features).flat_map(|one| [&one.of, &one.over]);
        products.flat_map(|product| &product.0).any(|term| is_announced(&term.of))
    }

    /// Number of values that the network sees, without memory.
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
                "expected the initial, the smallest and the largest rate",
            );
        }
        Ok(())
    }
}
