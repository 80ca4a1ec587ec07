//! What the commands print: results on standard output, failures on standard error.

use std::io::Write;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use testbed::progress::{Progress, seconds};

/// Prints a line of a result.
pub(crate) fn line(text: impl AsRef<str>) {
    // Nobody is left to tell when standard output is closed.
    let _ = writeln!(std::io::stdout(), "{}", text.as_ref());
}

/// Prints a heading, with an empty line before it.
pub(crate) fn heading(text: &str) {
    line(format!("\n{text}"));
}

/// Prints rows in columns, without a frame.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    line(table.trim_fmt());
}

/// Prints how long each step took.
pub(crate) fn timings(progress: &Progress) {
    heading("Time of each step");
    let timings = progress.timings();
    let total: Duration = timings.iter().map(|timing| timing.took).sum();
    let rows = timings.iter().map(|timing| {
        let mark = if timing.completed { "" } else { "failed" };
        vec![timing.title.clone(), seconds(timing.took), mark.to_owned()]
    });
    table(
        &["STEP", "TIME", ""],
        rows.chain([vec!["in all".to_owned(), seconds(total), String::new()]]),
    );
}

/// Prints an error with all its causes, each once.
pub(crate) fn failure(error: &anyhow::Error) {
    let mut err = std::io::stderr();
    let _ = writeln!(err, "\nerror: {error}");
    for cause in error.chain().skip(1) {
        let _ = writeln!(err, "  because: {cause}");
    }
}

/// Bytes as a person says them.
#[expect(
    clippy::cast_precision_loss,
    reason = "one digit after the point is shown"
)]
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1024.0 / 1024.0)
}
