//! The table in `docs/what-users-report.md` names tests that are there.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use testbed::paths;

#[test]
fn what_users_report_is_held_by_tests_that_exist() {
    let read = |path: &str| std::fs::read_to_string(paths::repository().join(path));
    let table = read("docs/what-users-report.md").unwrap();
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| ["))
        .collect();
    assert!(rows.len() > 20, "the table is read: {}", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [_, _, _, tests] = cells.as_slice() else {
            panic!("not four cells: {row}");
        };
        for named in tests.split("<br>") {
            let test = named.trim().trim_matches('`');
            let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{row}"));
            let source = read(file).unwrap_or_else(|error| panic!("{file}: {error}"));
            // What stands above it makes it a test.
            let (above, _) = source
                .split_once(&format!("fn {name}("))
                .unwrap_or_else(|| panic!("{file} has no {name}"));
            let above: Vec<&str> = above.lines().rev().take(2).collect();
            let is_test = above.iter().any(|line| line.contains("test]"));
            assert!(is_test, "{test} is no test: {above:?}");
        }
    }
}
