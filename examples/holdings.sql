-- Positions with the prices of their tickers, and what each ticker is worth in all positions: kept up to date while
-- positions open, change and close, and prices move.
--
--   tablestream run examples/holdings.sql --set logs=logs --set out=out --checkpoint out/checkpoint

CREATE TABLE positions (
  position_id INT,
  ticker STRING,
  amount INT,
  op STRING,
  at TIMESTAMP,
  PRIMARY KEY (position_id)
) USING json
  LOCATION '${logs}/positions'
  OPTIONS (timestamp 'at', deletes "op = 'd'");

CREATE TABLE tickers (ticker STRING, price DOUBLE, at TIMESTAMP, PRIMARY KEY (ticker))
  USING json
  LOCATION '${logs}/tickers'
  OPTIONS (timestamp 'at');

-- A log: each change of the view.
CREATE MATERIALIZED VIEW holdings
  USING parquet
  LOCATION '${out}/holdings'
AS
SELECT p.position_id, p.ticker, p.amount, t.price, p.amount * t.price AS worth
FROM positions p LEFT JOIN tickers t ON p.ticker = t.ticker;

-- A maintained table: a row for each ticker.
CREATE MATERIALIZED VIEW by_ticker
  USING delta
  LOCATION '${out}/by_ticker'
AS
SELECT ticker, count(*) AS positions, sum(worth) AS worth
FROM holdings
GROUP BY ticker;
