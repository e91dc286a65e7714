//! What a policy sees of one connection.

use skyhop_cc::Report;

use crate::card::Card;
use crate::feature::Running;
use crate::quantity::Quantities;

/// The features of the newest reports of a connection, oldest first.
#[derive(Debug, Clone)]
pub struct Observer {
    quantities: Vec<Running>,
    features: Vec<Running>,
    own: Vec<f64>,
    before: Option<Report>,
    seen: Vec<f32>,
}

impl Observer {
    /// For a connection that has not reported yet.
    pub fn new(card: &Card) -> Self {
        let observation = &card.observation;
        let own: Vec<&str> = observation.quantities.iter().map(|one| &*one.name).collect();
        let before = |(place, one)| Running::new(one, &own[..place]);
        Self {
            quantities: observation.quantities.iter().enumerate().map(before).collect(),
            features: observation.features.iter().map(|one| Running::new(one, &own)).collect(),
            own: Vec::with_capacity(own.len()),
            before: None,
            seen: vec![observation.filler; card.inputs()],
        }
    }

    /// What is seen with one report more, `output` being what the network said last.
    pub fn see(&mut self, report: &Report, output: f64) -> &[f32] {
        let quantities = Quantities::of(report, self.before.as_ref(), output);
        self.before = Some(*report);
        self.own.clear();
        for quantity in &mut self.quantities {
            let value = quantity.next(&quantities, &self.own);
            self.own.push(value);
        }
        let width = self.features.len();
        self.seen.rotate_left(width);
        let newest = self.seen.len() - width;
        for (place, feature) in self.seen[newest..].iter_mut().zip(&mut self.features) {
            // What f32 cannot hold is no number to the network.
            let value = feature.next(&quantities, &self.own) as f32;
            *place = if value.is_finite() { value } else { 0.0 };
        }
        &self.seen
    }

    /// What was seen last.
    pub fn seen(&self) -> &[f32] {
        &self.seen
    }
}
