//! `tenure roster views` for tables of applications that existed before: the SQL that it prints is run as it is.

use std::process::Output;

use tenure_testkit::postgres::{Endpoint, shared};

use crate::support::{Ran, run, tenure};

const GUIDE: &str = include_str!("../../../../../docs/guides/roster-views.md");

/// A database with the schema of a ledger and an application's tables.
struct Database {
    server: &'static Endpoint,
    url: String,
    /// Of the names of roles, which are global to the server.
    suffix: String,
}

impl Database {
    fn with(tables: &str) -> Option<Self> {
        let server = shared()?;
        let url = server.database();
        let (_, suffix) = url.split_once("/test").expect("the name of a test's database");
        let database = Self {
            server,
            suffix: suffix.to_owned(),
            url,
        };
        let dir = tempfile::tempdir().expect("a directory");
        let store = format!("sqlite:{}", dir.path().join("store").display());
        let mut names = tenure();
        names.args(["roster", "names", "--store", &store, "--ledger", &database.url]);
        let made = run(names);
        assert_eq!(made.code, Some(0), "{}", made.err);
        database.sql(&format!("CREATE ROLE {}; {tables}", database.app()));
        Some(database)
    }

    fn app(&self) -> String {
        format!("app{}", self.suffix)
    }

    fn roster(&self) -> String {
        format!("rides{}", self.suffix)
    }

    fn psql(&self, statements: &str) -> Output {
        let mut psql = self.server.psql();
        psql.args(["-d", &self.url, "-c", statements]);
        psql.output().expect("psql")
    }

    /// Runs statements as the superuser. Returns the rows.
    #[track_caller]
    fn sql(&self, statements: &str) -> String {
        let done = self.psql(statements);
        assert!(
            done.status.success(),
            "{statements}\n{}",
            String::from_utf8_lossy(&done.stderr)
        );
        String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
    }

    /// Runs statements as the application.
    #[track_caller]
    fn run_as_app(&self, statements: &str) -> String {
        self.sql(&format!("SET ROLE {}; {statements}", self.app()))
    }

    /// Runs statements as the application that must be refused, with these words.
    #[track_caller]
    fn refused(&self, statements: &str, words: &str) {
        let done = self.psql(&format!("SET ROLE {}; {statements}", self.app()));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(words), "{statements}: {said}");
    }

    fn views(&self, args: &[&str]) -> Ran {
        let mut views = tenure();
        views.args(["roster", "views", "--ledger", &self.url, "--app-role", &self.app()]);
        views.args(["--roster", &self.roster()]).args(args);
        run(views)
    }

    /// Prints the SQL for these arguments and runs it.
    #[track_caller]
    fn move_over(&self, args: &[&str]) -> Ran {
        let printed = self.views(args);
        assert_eq!(printed.code, Some(0), "{}", printed.err);
        self.sql(&printed.out);
        printed
    }

    /// All rows of these tables, as text.
    #[track_caller]
    fn rows(&self, tables: &[&str]) -> String {
        let select = |table: &&str| format!("SELECT to_jsonb(t) FROM {table} t ORDER BY 1;");
        self.sql(&tables.iter().map(select).collect::<String>())
    }
}

/// A block of the guide, by its first line.
fn block(title: &str) -> &'static str {
    let (_, rest) = GUIDE.split_once(&format!("```sql\n-- {title}\n")).expect("a block");
    rest.split("```").next().expect("its end")
}

/// The arguments of the command in the guide, without the values that are a test's own.
fn command_of_the_guide() -> Vec<&'static str> {
    let (_, rest) = GUIDE.split_once("```sh\ntenure roster views").expect("the command");
    let command = rest.split("> move.sql").next().expect("its end");
    let words: Vec<_> = command.split_whitespace().filter(|word| *word != "\\").collect();
    let own = ["--ledger", "--roster", "--app-role"];
    let pairs = words.chunks(2).filter(|pair| !own.contains(&pair[0]));
    pairs.flatten().copied().collect()
}

#[test]
fn views_of_the_guides_tables_serve_its_application() {
    let Some(database) = Database::with(block("Before.")) else {
        return;
    };
    database.sql(
        "INSERT INTO drivers (name, blocked, on_shift, max_rides, vehicle, last_seen) VALUES
             ('Ann', false, true, 2, 'car', '2026-01-01 10:00:00+00'), ('Bob', true, true, 1, NULL, NULL);
         INSERT INTO rides (driver_id, state, pickup, fare_cents, created_at, expires_at) VALUES
             (1, 'accepted', 'Station', 900, '2026-01-01 09:00:00+00', '2026-01-01 09:01:00+00'),
             (NULL, 'offered', 'Museum', NULL, '2026-01-01 10:00:00+00', '2036-01-01 10:00:00+00'),
             (2, 'cancelled', 'Zoo', NULL, '2026-01-01 07:00:00+00', NULL);",
    );
    let printed = database.move_over(&command_of_the_guide());
    assert_eq!(printed.err, "", "every column has its place");
    assert!(
        printed.out.contains("--   blocked                  not active\n"),
        "{}",
        printed.out
    );
    let tenures = "SELECT provider, display_name, active, online, capacity, occupancy FROM tenure.providers ORDER BY 1";
    assert_eq!(database.sql(tenures), "1|Ann|t|t|2|1\n2|Bob|f|f|1|0");
    let work = "SELECT engagement, provider, status, expires_at IS NULL FROM tenure.engagements ORDER BY 1";
    assert_eq!(database.sql(work), "1|1|active|t\n2||pending|f\n3|2|cancelled|t");

    let said = database.run_as_app(block("The application."));
    assert_eq!(said, "3\n4", "the ids that RETURNING tells");
    let zoe = "SELECT name, blocked, on_shift, max_rides, vehicle, last_seen FROM drivers WHERE id = 3";
    assert_eq!(database.run_as_app(zoe), "Zoe|t|f|2|van|");
    assert_eq!(
        database.run_as_app("SELECT state, driver_id, fare_cents FROM rides WHERE id = 4"),
        "done|3|1250"
    );
    assert_eq!(database.run_as_app("SELECT id FROM rides WHERE id = 1 FOR UPDATE"), "1");
    database.refused("SELECT FROM tenure.providers", "permission denied");
    database.refused("SELECT FROM driver_details", "does not exist");
    database.refused("SELECT FROM drivers_details", "permission denied");
    database.refused("UPDATE drivers SET last_seen = now()", "last_seen is the heartbeat");
    database.refused("UPDATE rides SET state = 'accepted' WHERE id = 4", "rides 4 is done");
    database.refused("INSERT INTO drivers (vehicle) VALUES ('van')", "drivers needs name");
    // Again would move views.
    let again = database.views(&command_of_the_guide());
    assert_eq!(again.code, Some(2), "{}", again.err);
    assert!(again.err.contains("the move is done already"), "{}", again.err);
}

/// Other names, types and nulls; more words than Tenure has, and other zones.
const COURIERS: &str = "
    CREATE SCHEMA fleet;
    CREATE TYPE fleet.stage AS ENUM ('new', 'assigned', 'on its way', 'handed over', 'returned', 'timed_out', 'cancelled');
    CREATE TABLE fleet.\"Couriers\" (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(), full_name varchar(80), enabled boolean DEFAULT true,
        \"onDuty\" boolean NOT NULL DEFAULT false, max_parcels smallint, last_seen_at timestamp, meta json,
        zone text NOT NULL DEFAULT 'north', \"ZONE\" text GENERATED ALWAYS AS (upper(zone)) STORED);
    CREATE TABLE fleet.parcels (
        nr integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, courier uuid NOT NULL REFERENCES fleet.\"Couriers\",
        stage fleet.stage NOT NULL DEFAULT 'new', \"it's %\" text, due timestamp, created timestamp NOT NULL DEFAULT now());
    INSERT INTO fleet.\"Couriers\" (id, full_name, \"onDuty\", max_parcels, last_seen_at, meta) VALUES
        ('11111111-1111-1111-1111-111111111111', 'Ann', true, 5, '2026-01-01 10:00:00', '{\"a\": 1}'),
        ('22222222-2222-2222-2222-222222222222', NULL, false, NULL, NULL, NULL);
    INSERT INTO fleet.parcels (courier, stage, \"it's %\", due) VALUES
        ('11111111-1111-1111-1111-111111111111', 'on its way', 'x', '2020-01-01 00:00:00'),
        ('11111111-1111-1111-1111-111111111111', 'assigned', NULL, '2036-01-01 00:00:00'),
        ('22222222-2222-2222-2222-222222222222', 'handed over', NULL, NULL),
        ('22222222-2222-2222-2222-222222222222', 'returned', NULL, NULL);
    UPDATE fleet.parcels SET due = NULL WHERE stage = 'on its way';
";
const OF_COURIERS: [&str; 12] = [
    "--from",
    "fleet.\"Couriers\"",
    "--engagements",
    "fleet.parcels",
    "--online",
    "onDuty",
    "--status",
    "stage",
    "--expires-at",
    "due",
    "--words",
    "on its way=active,handed over=ended,returned=ended",
];

#[test]
fn views_of_other_tables_show_the_same_rows() {
    let Some(database) = Database::with(COURIERS) else {
        return;
    };
    let tables = ["fleet.\"Couriers\"", "fleet.parcels"];
    let before = database.rows(&tables);
    database.move_over(&OF_COURIERS);
    let app = format!("GRANT USAGE ON SCHEMA fleet TO {}", database.app());
    database.sql(&app);
    assert_eq!(database.rows(&tables), before);
    let zone = "SET timezone = 'Asia/Tokyo'; SELECT to_jsonb(t) FROM fleet.\"Couriers\" t ORDER BY 1";
    assert_eq!(database.sql(zone), database.rows(&tables[..1]));
    let tenures = "SELECT display_name, active, online, uses_default, capacity, occupancy FROM tenure.providers ORDER BY provider";
    assert_eq!(database.sql(tenures), "Ann|t|t|f|5|2\n|t|f|t|1|0");

    // Both words of a status stay apart, and what Tenure does is shown in a word of the application.
    let stages = || database.run_as_app("SELECT string_agg(stage::text, ', ' ORDER BY nr) FROM fleet.parcels");
    assert_eq!(stages(), "on its way, assigned, handed over, returned");
    database.run_as_app("UPDATE fleet.parcels SET stage = 'returned' WHERE nr = 1");
    database.sql("UPDATE tenure.engagements SET status = 'expired' WHERE engagement = '2'");
    assert_eq!(stages(), "returned, timed_out, handed over, returned");
    database.run_as_app("UPDATE fleet.parcels SET \"it's %\" = 'y' WHERE nr = 2");
    assert_eq!(stages(), "returned, timed_out, handed over, returned");
    database.refused(
        "UPDATE fleet.parcels SET stage = 'new' WHERE nr = 1",
        "parcels 1 is returned",
    );

    database.run_as_app("UPDATE fleet.\"Couriers\" SET meta = '{\"b\": 2}', max_parcels = 9 WHERE full_name = 'Ann'");
    let ann = "SELECT max_parcels, meta, \"ZONE\" FROM fleet.\"Couriers\" WHERE full_name = 'Ann'";
    assert_eq!(database.run_as_app(ann), "9|{\"b\": 2}|NORTH");
    let new =
        database.run_as_app("INSERT INTO fleet.\"Couriers\" (full_name, zone) VALUES ('Cem', 'east') RETURNING id");
    let parcel = format!("INSERT INTO fleet.parcels (courier) VALUES ('{new}') RETURNING nr, stage, created IS NULL");
    assert_eq!(database.run_as_app(&parcel), "5|new|f");
    database.refused("INSERT INTO fleet.parcels DEFAULT VALUES", "parcels needs courier");
    database.run_as_app(&format!(
        "DELETE FROM fleet.parcels WHERE nr = 5; DELETE FROM fleet.\"Couriers\" WHERE id = '{new}'"
    ));
    assert_eq!(database.sql("SELECT count(*) FROM tenure.providers"), "2");
}

#[test]
fn what_the_views_cannot_map_is_named_with_its_flag() {
    let tables = "
        CREATE TABLE agents (nr bigint PRIMARY KEY, login text, enabled text, is_online boolean, on_duty boolean);
        CREATE TABLE calls (nr bigint PRIMARY KEY, agent bigint, backup bigint, status text);
        CREATE TABLE notes (body text)";
    let Some(database) = Database::with(tables) else { return };
    let printed = database.views(&["--from", "agents"]);
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    for gap in [
        "--name COLUMN is not set and no column of public.agents looks like it: providers have no name for people",
        "--active COLUMN is not set and no column of public.agents looks like it: all providers are active",
        "--online COLUMN is not set and is_online and on_duty could be it: all providers begin offline",
        "--capacity COLUMN is not set",
        "--last-seen COLUMN is not set",
    ] {
        assert!(printed.err.contains(gap), "{gap}\n{}", printed.err);
        assert!(printed.out.contains(&format!("--   {gap}")), "{gap}\n{}", printed.out);
    }
    let calls = |more: &[&'static str]| [&["--from", "agents", "--engagements", "calls"][..], more].concat();
    for (args, must_say) in [
        (
            vec!["--from", "agent"],
            "no table \"public.agent\"; did you mean \"public.agents\"?",
        ),
        (
            vec!["--from", "notes"],
            "public.notes has no primary key of one column; name a column that is unique",
        ),
        (vec!["--from", "notes", "--id", "body"], "public.notes.body may be NULL"),
        (
            vec!["--from", "agents", "--name", "logn"],
            "no column \"logn\"; did you mean \"login\"?",
        ),
        (
            vec!["--from", "agents", "--active", "enabled"],
            "public.agents.enabled is text, and this must be a boolean",
        ),
        (vec!["--from", "agents", "--status", "x"], "--engagements"),
        (vec!["--from", "a b c"], "no table \"public.a b c\""),
        (calls(&[]), "public.calls.status is a text whose values no CHECK lists"),
        (
            calls(&["--words", "new=pendin"]),
            "there is no status \"pendin\"; there are pending, active",
        ),
        (calls(&["--words", "new"]), "write WORD=STATUS"),
        (
            calls(&["--words", "new=pending"]),
            "no column of public.calls looks like the provider; name the one with its id with --provider COLUMN",
        ),
        (
            calls(&["--words", "new=pending", "--provider", "status"]),
            "both must have one type",
        ),
    ] {
        let ran = database.views(&args);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(must_say), "{args:?}: {}", ran.err);
    }
    // Providers alone.
    database.move_over(&[
        "--from",
        "agents",
        "--name",
        "login",
        "--online",
        "on_duty",
        "--capacity",
        "",
    ]);
    database.run_as_app("INSERT INTO agents (nr, login) VALUES (7, 'ann'); UPDATE agents SET on_duty = true");
    assert_eq!(
        database.sql("SELECT provider, display_name, online FROM tenure.providers"),
        "7|ann|t"
    );
}
