//! Parquet columns of a run's tables; every column's name contains its unit.

use arrow_array::{Int32Array, Int64Array, StringArray};
use skyhop_files::Column;
use skyhop_model::{AppTable, Direction, LossReason, PATH_LINK};

use crate::app_detail::detail_columns;
use crate::rows::NO_LINK;
use crate::{AppRow, EventRow, FlowSample, LinkSample, ProbeRow, RouteRow};

/// Return the tables that a run may have, by file name without extension, and the names of their columns.
pub fn table_columns() -> Vec<(&'static str, Vec<String>)> {
    let mut tables = vec![
        ("flows", flow_columns(&[])),
        ("link", link_columns(&[], &[])),
        ("events", event_columns(&[], &[])),
        ("probes", probe_columns(&[])),
        ("routes", route_columns(&[], &[])),
    ];
    tables.extend(AppTable::ALL.iter().map(|table| (table.name(), app_columns(*table, &[]))));
    let names = |columns: Vec<Column>| columns.into_iter().map(|column| column.name).collect();
    tables.into_iter().map(|(table, columns)| (table, names(columns))).collect()
}

fn int64<T>(rows: &[T], value: impl Fn(&T) -> i64) -> Int64Array {
    Int64Array::from_iter_values(rows.iter().map(value))
}

fn maybe_int64<T>(rows: &[T], value: impl Fn(&T) -> Option<i64>) -> Int64Array {
    rows.iter().map(value).collect()
}

fn int32<T>(rows: &[T], value: impl Fn(&T) -> i32) -> Int32Array {
    Int32Array::from_iter_values(rows.iter().map(value))
}

fn maybe_int32<T>(rows: &[T], value: impl Fn(&T) -> Option<i32>) -> Int32Array {
    rows.iter().map(value).collect()
}

fn text<T>(rows: &[T], value: impl Fn(&T) -> &str) -> StringArray {
    StringArray::from_iter_values(rows.iter().map(value))
}

fn maybe_text<T>(rows: &[T], value: impl Fn(&T) -> Option<&str>) -> StringArray {
    rows.iter().map(value).collect()
}

fn link_names(links: &[String], numbers: impl Iterator<Item = u16>) -> StringArray {
    let name = |number: u16| match number {
        NO_LINK => "",
        number => links.get(usize::from(number)).map_or(PATH_LINK, String::as_str),
    };
    StringArray::from_iter_values(numbers.map(name))
}

pub(crate) fn flow_columns(rows: &[FlowSample]) -> Vec<Column> {
    vec![
        Column::required("t_ns", int64(rows, |r| r.t_ns)),
        Column::required("flow", int32(rows, |r| r.flow)),
        Column::required("goodput_bps", int64(rows, |r| r.goodput_bps)),
        Column::required("cwnd_packets", int64(rows, |r| r.cwnd_packets)),
        Column::optional("ssthresh_packets", maybe_int64(rows, |r| r.ssthresh_packets)),
        Column::optional("srtt_us", maybe_int64(rows, |r| r.srtt_us)),
        Column::optional("ack_rtt_us", maybe_int64(rows, |r| r.ack_rtt_us)),
        Column::required("inflight_packets", int64(rows, |r| r.inflight_packets)),
        Column::required("retransmits", int64(rows, |r| r.retransmits)),
        Column::optional("marks", maybe_int64(rows, |r| r.marks)),
        Column::optional("pacing_rate_bps", maybe_int64(rows, |r| r.pacing_rate_bps)),
        Column::required("state", text(rows, |r| r.state.name())),
    ]
}

pub(crate) fn link_columns(rows: &[LinkSample], links: &[String]) -> Vec<Column> {
    let mut columns = vec![
        Column::required("t_ns", int64(rows, |r| r.t_ns)),
        Column::required("link", link_names(links, rows.iter().map(|r| r.link))),
        Column::required("direction", text(rows, |r| r.direction.name())),
        Column::required("backlog_bytes", int64(rows, |r| r.backlog_bytes)),
        Column::required("backlog_packets", int64(rows, |r| r.backlog_packets)),
        Column::required("delivered_bytes", int64(rows, |r| r.delivered_bytes)),
        Column::required("background_bytes", int64(rows, |r| r.background_bytes)),
    ];
    columns.extend(LossReason::ALL.iter().map(|reason| {
        let lost = int64(rows, |row| row.drops[*reason] as i64);
        Column::required(format!("drops_{reason}"), lost)
    }));
    columns.push(Column::required("marks", int64(rows, |r| r.marks)));
    columns
}

pub(crate) fn event_columns(rows: &[EventRow], links: &[String]) -> Vec<Column> {
    vec![
        Column::required("t_ns", int64(rows, |r| r.t_ns)),
        Column::required("kind", text(rows, |r| r.kind.name())),
        Column::optional("hop", maybe_int32(rows, |r| r.hop)),
        Column::required("outage_ns", int64(rows, |r| r.outage_ns)),
        Column::optional("reason", maybe_text(rows, |r| r.reason.map(LossReason::name))),
        Column::required("link", link_names(links, rows.iter().map(|r| r.link))),
        Column::optional("direction", maybe_text(rows, |r| r.direction.map(Direction::name))),
        Column::optional("flow", maybe_int32(rows, |r| r.flow)),
        Column::optional("at_ns", maybe_int64(rows, |r| r.at_ns)),
        Column::optional("length_ns", maybe_int64(rows, |r| r.length_ns)),
    ]
}

pub(crate) fn probe_columns(rows: &[ProbeRow]) -> Vec<Column> {
    vec![
        Column::required("probe", int32(rows, |r| r.probe)),
        Column::required("seq", int64(rows, |r| r.seq)),
        Column::required("t_ns", int64(rows, |r| r.t_ns)),
        Column::optional("rtt_ns", maybe_int64(rows, |r| r.rtt_ns)),
        Column::optional("scheduled_rtt_ns", maybe_int64(rows, |r| r.scheduled_rtt_ns)),
    ]
}

pub(crate) fn route_columns(rows: &[RouteRow], sites: &[String]) -> Vec<Column> {
    let names = |site: fn(&RouteRow) -> u32| {
        let index = rows.iter().map(|row| site(row) as usize);
        StringArray::from_iter_values(index.map(|site| sites.get(site).map_or("", String::as_str)))
    };
    let satellites = StringArray::from_iter_values(rows.iter().map(RouteRow::satellites_text));
    vec![
        Column::required("t_ns", int64(rows, |r| r.t_ns)),
        Column::required("from", names(|r| r.from)),
        Column::required("to", names(|r| r.to)),
        Column::required("way", int32(rows, |r| r.way as i32)),
        Column::required("satellites", satellites),
        Column::optional("delay_ns", maybe_int64(rows, |r| r.delay_ns)),
    ]
}

/// Columns common to the tables of all applications, and the columns that only this table has.
pub(crate) fn app_columns(table: AppTable, rows: &[AppRow]) -> Vec<Column> {
    let mut columns = vec![
        Column::required("flow", int32(rows, |r| r.flow)),
        Column::required("connection", int32(rows, |r| r.connection)),
        Column::required("seq", int64(rows, |r| r.seq)),
        Column::required("t_ns", int64(rows, |r| r.t_ns)),
        Column::required("sent_bytes", int64(rows, |r| r.sent_bytes)),
        Column::required("answered_bytes", int64(rows, |r| r.answered_bytes)),
        Column::optional("connect_ns", maybe_int64(rows, |r| r.connect_ns)),
        Column::optional("first_byte_ns", maybe_int64(rows, |r| r.first_byte_ns)),
        Column::optional("latency_ns", maybe_int64(rows, |r| r.latency_ns)),
    ];
    columns.extend(detail_columns(table, rows));
    columns
}
