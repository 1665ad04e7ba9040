"""What a model must not do to a database, for the guards of all of them."""

from __future__ import annotations


def each(template: str, words: str) -> list[str]:
    """The statement with each of the words, which have no spaces, in its place."""
    return [template.replace("{}", word) for word in words.split()]


WRITES = [
    *each(
        "SELECT {}",
        "load_extension('x.so') fts3_tokenizer('simple') readfile('/etc/passwd') edit('x') sqlite_compileoption_get(0)",
    ),
    "SELECT 1; DROP TABLE disease",
    "SELECT 1; SELECT 2",
    "WITH x AS (SELECT 1) DELETE FROM disease",
    "WITH x AS (SELECT 1) INSERT INTO disease (id) SELECT * FROM x RETURNING id",
    "WITH x AS (SELECT 1) UPDATE disease SET overview = '' RETURNING *",
    "INSERT INTO disease (id) VALUES (9) RETURNING id",
    "REPLACE INTO disease (id) VALUES (1)",
    "DROP TABLE disease",
    "ALTER TABLE disease RENAME TO x",
    "CREATE TABLE x AS SELECT * FROM disease",
    "CREATE TEMP TABLE x (a)",
    "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE VIRTUAL TABLE temp.x USING fts5 (a)",
    "CREATE TRIGGER t AFTER INSERT ON disease BEGIN SELECT 1; END",
    "ATTACH 'evil.db' AS e",
    "ATTACH 'file:evil.db?mode=rwc' AS e",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO 'evil.db'",
    "BEGIN",
    "BEGIN EXCLUSIVE",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT a",
    "RELEASE a",
    "PRAGMA user_version = 7",
    "PRAGMA data_version",
    "PRAGMA writable_schema = ON",
    "PRAGMA hard_heap_limit = 0",
    "PRAGMA table_info(accounts)",
    "REINDEX",
    "ANALYZE",
    "EXPLAIN SELECT 1",
    "EXPLAIN QUERY PLAN SELECT 1",
    "QUERY PLAN SELECT 1",
    "VALUES (1)",
    "SELECT fts3_tokenizer('simple', x'0000000000000000')",
    "SELECT writefile('evil.db', 'x')",
]

HIDDEN = [
    *each(
        "SELECT * FROM {}",
        """
        accounts main.accounts "accounts" logins drug_index_data sqlite_master sqlite_temp_master pragma_table_list
        pragma_database_list pragma_function_list pragma_index_list('accounts') sqlite_stmt sqlite_dbpage
        """,
    ),
    *each(
        "SELECT count(*) FROM {}",
        """
        accounts drug_index_content sqlite_master sqlite_temp_schema pragma_table_list dbstat json_tree('[1]')
        """,
    ),
    "SELECT 1 FROM accounts",
    "SELECT EXISTS (SELECT 1 FROM accounts)",
    "SELECT id FROM disease WHERE id IN accounts",
    "SELECT (SELECT login FROM accounts)",
    "SELECT id FROM disease UNION ALL SELECT login FROM accounts",
    "SELECT d.id FROM disease d NATURAL JOIN accounts",
    "SELECT d.id FROM disease d LEFT JOIN accounts ON 0",
    "SELECT d.id FROM disease d, accounts",
    "WITH disease AS (SELECT login FROM accounts) SELECT * FROM disease",
    "WITH x AS (SELECT * FROM logins) SELECT count(*) FROM x",
    "SELECT max(login) OVER () FROM accounts",
    "SELECT login FROM disease, accounts ORDER BY login",
    "SELECT c0 FROM drug_index_content",
    "SELECT sql FROM main.sqlite_schema",
    "SELECT name FROM pragma_table_info('accounts')",
    "SELECT 1 FROM pragma_table_info('accounts')",
    "SELECT file FROM pragma_database_list",
    "SELECT name FROM dbstat",
    "SELECT * FROM bytecode('SELECT 1')",
    "SELECT * FROM tables_used('SELECT 1')",
    "SELECT value FROM json_each('[1]')",
    "SELECT value FROM generate_series(1, 9)",
    "SELECT term FROM fts5vocab",
]

TELLTALE = [
    "SELECT * FROM {}",
    "SELECT count(*) FROM {}",
    "SELECT nocolumn FROM {}",
    "SELECT login FROM {}",
    "SELECT id FROM disease, {}",
    "SELECT id FROM disease NATURAL JOIN {}",
    "SELECT 1 WHERE 0 AND EXISTS (SELECT 1 FROM {})",
    "SELECT 1 IN {}",
    "SELECT FROM {}",
    "SELECT * FROM {} INDEXED BY i",
    "SELECT * FROM {}(1)",
    "SELECT main.{}.id FROM disease",
    "WITH {0} AS (SELECT 1 AS id) SELECT id FROM {0}",
    "WITH {0} AS (SELECT 1 AS id) SELECT count(*) FROM {0}",
    "SELECT id FROM disease {0} WHERE {0}.id = 1",
]
