//! Terms of features: a quantity as it is now, or over a window of reports.

use std::collections::VecDeque;
use std::str::FromStr;

use serde::Deserialize;

use crate::card::Feature;
use crate::quantity::{Quantities, Quantity};

/// How many reports a window may hold.
const MOST_REPORTS: usize = 100_000;

/// What a window of reports amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// The newest alone.
    Now,
    /// The one before it; 0 where there is none.
    Previous,
    /// Arithmetic mean.
    Mean,
    /// Least value that is not 0; 0 where there is none.
    Min,
    /// Largest value.
    Max,
    /// Sum.
    Sum,
}

/// A quantity, and over how many reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Term {
    /// Of what.
    pub quantity: Quantity,
    /// What of the window.
    pub take: Take,
    /// How many reports, the newest among them; `None`: all since the connection began.
    pub reports: Option<usize>,
}

impl TryFrom<String> for Term {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Term {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((take, inside)) = text.split_once('(') else {
            return Ok(Self { quantity: quantity(text)?, take: Take::Now, reports: Some(1) });
        };
        let inside = inside.strip_suffix(')').ok_or_else(|| format!("`{text}` has no `)`"))?;
        let (name, reports) = match inside.split_once(',') {
            Some((name, reports)) => (name, Some(reports.trim())),
            None => (inside, None),
        };
        let take = match take.trim() {
            "previous" => Take::Previous,
            "mean" => Take::Mean,
            "min" => Take::Min,
            "max" => Take::Max,
            "sum" => Take::Sum,
            other => {
                return Err(format!("`{other}` is none of previous, mean, min, max and sum"));
            }
        };
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| (1..=MOST_REPORTS).contains(number));
            number
                .ok_or_else(|| format!("`{text}` is no number of reports from 1 to {MOST_REPORTS}"))
        };
        let reports = match take {
            Take::Previous => Some(2),
            _ => reports.map(number).transpose()?,
        };
        Ok(Self { quantity: quantity(name.trim())?, take, reports })
    }
}

fn quantity(name: &str) -> Result<Quantity, String> {
    let found = Quantity::ALL.iter().find(|quantity| quantity.name() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = Quantity::ALL.iter().map(|quantity| quantity.name()).collect();
        format!("`{name}` is no quantity of a report; there are {}", known.join(", "))
    })
}

/// A term with what it remembers.
#[derive(Debug, Clone)]
struct Window {
    term: Term,
    values: VecDeque<f64>,
    /// Of all since the beginning: how many, their sum, the least that is not 0, the largest.
    all: (f64, f64, f64, f64),
}

impl Window {
    fn new(term: Term) -> Self {
        Self { term, values: VecDeque::new(), all: (0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY) }
    }

    fn next(&mut self, quantities: &Quantities) -> f64 {
        let value = quantities.get(self.term.quantity);
        let Some(reports) = self.term.reports else { return self.next_of_all(value) };
        if reports == 1 {
            return value;
        }
        if self.values.len() == reports {
            self.values.pop_front();
        }
        self.values.push_back(value);
        let values = || self.values.iter().copied();
        match self.term.take {
            Take::Now => value,
            Take::Previous if self.values.len() < 2 => 0.0,
            Take::Previous => self.values[0],
            Take::Mean => values().sum::<f64>() / self.values.len() as f64,
            Take::Sum => values().sum(),
            Take::Max => values().fold(f64::NEG_INFINITY, f64::max),
            Take::Min => {
                finite(values().filter(|value| *value != 0.0).fold(f64::INFINITY, f64::min))
            }
        }
    }

    fn next_of_all(&mut self, value: f64) -> f64 {
        let (count, sum, least, most) = &mut self.all;
        *count += 1.0;
        *sum += value;
        *most = most.max(value);
        if value != 0.0 {
            *least = least.min(value);
        }
        match self.term.take {
            Take::Mean => *sum / *count,
            Take::Sum => *sum,
            Take::Max => *most,
            Take::Min => finite(*least),
            Take::Now | Take::Previous => value,
        }
    }
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// A feature of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    feature: Feature,
    of: Vec<Window>,
    over: Vec<Window>,
}

impl Running {
    pub(crate) fn new(feature: &Feature) -> Self {
        let windows = |terms: &[Term]| terms.iter().copied().map(Window::new).collect();
        Self {
            feature: feature.clone(),
            of: windows(&feature.of.0),
            over: windows(&feature.over.0),
        }
    }

    /// Its value with one report more.
    pub(crate) fn next(&mut self, quantities: &Quantities) -> f32 {
        let product = |windows: &mut Vec<Window>| {
            windows.iter_mut().map(|window| window.next(quantities)).product::<f64>()
        };
        let (of, over) = (product(&mut self.of), product(&mut self.over));
        let Feature { times, plus, least, most, if_zero, otherwise, .. } = &self.feature;
        let value = match if_zero {
            Some(value) if of == 0.0 => *value,
            _ if over == 0.0 => *otherwise,
            _ => times * of / over + plus,
        };
        let value = least.map_or(value, |least| value.max(least));
        let value = most.map_or(value, |most| value.min(most));
        if value.is_finite() { value as f32 } else { 0.0 }
    }
}
