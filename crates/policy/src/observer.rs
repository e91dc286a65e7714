//! Observations of one connection, computed from its reports.

use skyhop_cc::Report;

use crate::card::Card;
use crate::feature::FeatureState;
use crate::quantity::Quantities;

/// Features of the newest reports of a connection, oldest first.
#[derive(Debug, Clone)]
pub struct Observer {
    quantities: Vec<FeatureState>,
    features: Vec<FeatureState>,
    own: Vec<f64>,
    before: Option<Report>,
    values: Vec<f32>,
}

impl Observer {
    /// Create the observer of a connection that has not reported yet.
    pub fn new(card: &Card) -> Self {
        let observation = &card.observation;
        let own: Vec<&str> = observation.quantities.iter().map(|one| &*one.name).collect();
        let before = |(place, one)| FeatureState::new(one, &own[..place]);
        Self {
            quantities: observation.quantities.iter().enumerate().map(before).collect(),
            features: observation.features.iter().map(|one| FeatureState::new(one, &own)).collect(),
            own: Vec::with_capacity(own.len()),
            before: None,
            values: vec![observation.filler; card.inputs()],
        }
    }

    /// Observation after another report; `output` is the network's last output.
    pub fn observe(&mut self, report: &Report, output: f64) -> &[f32] {
        let quantities = Quantities::of(report, self.before.as_ref(), output);
        self.before = Some(*report);
        self.own.clear();
        for quantity in &mut self.quantities {
            let value = quantity.next(&quantities, &self.own);
            self.own.push(value);
        }
        let width = self.features.len();
        self.values.rotate_left(width);
        let newest = self.values.len() - width;
        for (slot, feature) in self.values[newest..].iter_mut().zip(&mut self.features) {
            // A value that overflows f32 is not finite, which the network must not see.
            let value = feature.next(&quantities, &self.own) as f32;
            *slot = if value.is_finite() { value } else { 0.0 };
        }
        &self.values
    }

    /// Observation after the last report.
    pub fn last(&self) -> &[f32] {
        &self.values
    }
}
