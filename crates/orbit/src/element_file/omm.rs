//! Orbit mean-elements messages (OMM, CCSDS 502.0-B) as CelesTrak and Space-Track serve them.
//!
//! In JSON a file is an array of objects, in CSV a table, in XML an `ndm` with one `omm` per
//! satellite, in KVN lines "KEY = VALUE". The keywords are the same in all four formats.

use std::collections::BTreeMap;

use quick_xml::events::Event;
use serde_json::Value;
use skyhop_units::{Quoted, UtcInstant};

use super::{ElementFileError, Records, SkipReason, Skipped, printable_name};
use crate::element_set::{ElementSet, MeanElements};

/// Keywords of one message with their values as text.
type Fields = BTreeMap<String, String>;

/// Parse all messages of a JSON text.
pub(super) fn read_json(text: &str, records: &mut Records<'_>) -> Result<(), ElementFileError> {
    let value: Value = serde_json::from_str(text).map_err(|e| records.damaged("JSON", &e))?;
    let messages = match value {
        Value::Array(messages) => messages,
        one => vec![one],
    };
    for (number, message) in (1..).zip(messages) {
        let fields = match message {
            Value::Object(object) => object.into_iter().filter_map(json_field).collect(),
            _ => Fields::new(),
        };
        records.add(element_set(&fields, number))?;
    }
    Ok(())
}

fn json_field((key, value): (String, Value)) -> Option<(String, String)> {
    match value {
        Value::String(text) => Some((key, text)),
        Value::Number(number) => Some((key, number.to_string())),
        _ => None,
    }
}

/// Parse all messages of a CSV text.
pub(super) fn read_csv(text: &str, records: &mut Records<'_>) -> Result<(), ElementFileError> {
    let mut reader =
        csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| records.damaged("CSV", &e))?.clone();
    for (number, row) in (1..).zip(reader.records()) {
        let row = row.map_err(|e| records.damaged("CSV", &e))?;
        let cells = header.iter().zip(&row);
        let fields = cells.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        records.add(element_set(&fields, number))?;
    }
    Ok(())
}

/// Parse all messages of an XML text.
pub(super) fn read_xml(text: &str, records: &mut Records<'_>) -> Result<(), ElementFileError> {
    let mut reader = quick_xml::Reader::from_str(text);
    let (mut fields, mut number, mut value) = (Fields::new(), 1, String::new());
    let mut open = 0_u32;
    loop {
        let event = reader.read_event().map_err(|e| records.damaged("XML", &e))?;
        match event {
            Event::Start(_) => {
                open += 1;
                value.clear();
            }
            Event::Text(part) => {
                value.push_str(&part.decode().map_err(|e| records.damaged("XML", &e))?);
            }
            Event::GeneralRef(part) => {
                let name = part.decode().map_err(|e| records.damaged("XML", &e))?;
                value.push(match &*name {
                    "amp" => '&',
                    "lt" => '<',
                    "gt" => '>',
                    "apos" => '\'',
                    "quot" => '"',
                    _ => '\u{fffd}',
                });
            }
            Event::End(end) => {
                open = open.saturating_sub(1);
                let name = end.local_name();
                if name.as_ref() == b"omm" {
                    records.add(element_set(&std::mem::take(&mut fields), number))?;
                    number += 1;
                } else {
                    let key = String::from_utf8_lossy(name.as_ref()).into_owned();
                    fields.insert(key, value.trim().to_owned());
                }
                value.clear();
            }
            Event::Eof if open > 0 => return Err(records.damaged("XML", &"it ends too early")),
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

/// Parse all messages of a text in KVN (CCSDS 502.0-B-3 chapter 7); the first keyword of each is CCSDS_OMM_VERS.
pub(super) fn read_kvn(text: &str, records: &mut Records<'_>) -> Result<(), ElementFileError> {
    let (mut fields, mut number) = (Fields::new(), 1);
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        // A unit in brackets may follow the number: "53.05 [deg]".
        let value = value.split('[').next().unwrap_or_default();
        let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
        if key == "CCSDS_OMM_VERS" && !fields.is_empty() {
            records.add(element_set(&std::mem::take(&mut fields), number))?;
            number += 1;
        }
        fields.insert(key, value);
    }
    records.add(element_set(&fields, number))
}

/// Convert a message, the `number`th of its file, to an element set.
fn element_set(fields: &Fields, number: usize) -> Result<ElementSet, Skipped> {
    let name = fields.get("OBJECT_NAME").filter(|name| !name.is_empty());
    let name = name.map_or_else(|| format!("record {number}"), |name| printable_name(name));
    elements(name.clone(), fields).map_err(|reason| Skipped { name, reason })
}

fn elements(name: String, fields: &Fields) -> Result<ElementSet, SkipReason> {
    let text = |key: &str| {
        let value = fields.get(key).filter(|value| !value.is_empty());
        value.ok_or_else(|| SkipReason::Malformed(format!("no {key}")))
    };
    let number = |key: &str| {
        let value = text(key)?;
        value.parse::<f64>().map_err(|_| unreadable(key, value))
    };
    let catalogue_number = text("NORAD_CAT_ID")?;
    let elements = MeanElements {
        name,
        catalogue_number: catalogue_number
            .parse()
            .map_err(|_| unreadable("NORAD_CAT_ID", catalogue_number))?,
        epoch: epoch(text("EPOCH")?)?,
        inclination_deg: number("INCLINATION")?,
        node_deg: number("RA_OF_ASC_NODE")?,
        eccentricity: number("ECCENTRICITY")?,
        perigee_deg: number("ARG_OF_PERICENTER")?,
        anomaly_deg: number("MEAN_ANOMALY")?,
        mean_motion_rev_per_day: number("MEAN_MOTION")?,
        bstar: number("BSTAR")?,
    };
    ElementSet::new(elements).map_err(|error| SkipReason::Impossible(error.to_string()))
}

/// Parse an OMM's epoch: ISO 8601 in UTC, usually without the "Z".
fn epoch(text: &str) -> Result<UtcInstant, SkipReason> {
    let mut iso = text.trim().replace(' ', "T");
    if !iso.ends_with('Z') {
        iso.push('Z');
    }
    iso.parse().map_err(|_| unreadable("EPOCH", text))
}

fn unreadable(key: &str, value: &str) -> SkipReason {
    SkipReason::Malformed(format!("{key} is {}", Quoted(value)))
}
