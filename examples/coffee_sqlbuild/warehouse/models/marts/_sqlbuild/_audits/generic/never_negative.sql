AUDIT ();

SELECT *
FROM __ref("@model")
WHERE (@expression) < 0
